#!/usr/bin/env python3
"""Speed of kvscale beside llama.cpp and vLLM on this machine's CPU, rounds interleaved.

    bench/peers/cpu.py MODEL.gguf --kvscale build/release/src/cli/kvscale [--vllm VENV --hf DIRECTORY] [-t 2] [-r 3]

Needs the packages of requirements.txt beside this file (xllamacpp, gguf, numpy). vLLM is a virtual environment with its
CPU build, and reads the same model as a Hugging Face directory; without --vllm it is left out, which is said.

Weights are BF16 everywhere: what MODEL.gguf stores is dequantized, by kvscale as it loads, for llama.cpp into a BF16 GGUF
that this script writes. So the same bytes of weights are read by all. Caches: 16 bit (kvscale BF16, llama.cpp F16, vLLM
BF16) and 8 bit (kvscale fp8_scale1 and fp8_token_head, llama.cpp q8_0, vLLM fp8).

Each round runs every program on every test once, one after the other; a row is the median over the rounds, and a ratio is
the median of the rounds' ratios. The limits are those that kvscale measures in its own runs.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request


def bf16_gguf(source, target):
    """The model of `source` with matrices in BF16; vectors stay F32."""
    import gguf
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    own = {"general.architecture", "general.file_type", "general.quantization_version"}
    for field in reader.fields.values():
        if field.name in own or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
            continue
        bf16 = gguf.GGMLQuantizationType.BF16
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, bf16), raw_dtype=bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def some_tokens(n, vocab):
    """Of no meaning: speed does not depend on them. Another prompt every time, so that nothing is cached."""
    return [random.randrange(10, vocab) for _ in range(n)]


class Kvscale:
    def __init__(self, binary, model, args):
        self.binary, self.model, self.args = binary, model, args
        self.limits = []
        self.caches = {"16": "bf16", "8": "fp8_scale1", "8 inline": "fp8_token_head"}

    def round(self):
        a = self.args
        command = [self.binary, "bench", "model", self.model, "-o", "json", "-r", "1", "-n", str(a.tokens), "-t", str(a.threads),
                   "-p", ",".join(map(str, a.prefill)), "-d", ",".join(map(str, a.depths))]
        for arm in self.caches.values():
            command += ["--arm", arm]
        out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if not out["valid"]:
            sys.exit("kvscale: the correctness gate failed")
        self.limits.append((out["read_gbps"], out["multiply_gflops"]))
        names = {arm: cache for cache, arm in self.caches.items()}
        found = {}
        for row in out["rows"]:
            depth = row["depth"] if row["test"].startswith("tg") else None
            found["kvscale", names[row["cache"]], ("tg", depth) if depth is not None else ("pp", row["tokens"])] = row["tokens_per_s"]
        return found


class LlamaCpp:
    def __init__(self, model, args):
        import xllamacpp
        self.args = args
        kinds = {"16": xllamacpp.ggml_type.GGML_TYPE_F16, "8": xllamacpp.ggml_type.GGML_TYPE_Q8_0}
        self.servers = {}
        for cache, kind in kinds.items():
            p = xllamacpp.CommonParams()
            p.model.path, p.n_ctx, p.n_parallel, p.port = model, 8192, 1, args.port + len(self.servers)
            p.cache_type_k = p.cache_type_v = kind
            p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
            p.cpuparams.n_threads = p.cpuparams_batch.n_threads = args.threads
            p.warmup, p.verbosity = True, 0
            self.servers[cache] = xllamacpp.Server(p)

    def ask(self, cache, tokens, n):
        body = {"prompt": tokens, "n_predict": n, "cache_prompt": False, "ignore_eos": True, "temperature": 0}
        url = self.servers[cache].listening_address + "/completion"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=1800))["timings"]

    def round(self):
        a, found = self.args, {}
        for cache in self.servers:
            for n in a.prefill:
                t = self.ask(cache, some_tokens(n, a.vocab), 1)
                found["llama.cpp", cache, ("pp", n)] = 1e3 * t["prompt_n"] / t["prompt_ms"]
            for depth in a.depths:
                t = self.ask(cache, some_tokens(max(depth, 1), a.vocab), a.tokens + 1)
                # The first token comes with the prompt.
                found["llama.cpp", cache, ("tg", depth)] = 1e3 * (t["predicted_n"] - 1) / t["predicted_ms"]
        return found


class Vllm:
    def __init__(self, venv, directory, args):
        self.args, self.directory = args, directory
        env = dict(os.environ, VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                   OMP_NUM_THREADS=str(args.threads), VLLM_CPU_OMP_THREADS_BIND="nobind")
        self.servers = {}
        for cache, flags in {"16": [], "8": ["--kv-cache-dtype", "fp8"]}.items():
            port = args.port + 10 + len(self.servers)
            command = [os.path.join(venv, "bin/python"), "-m", "vllm.entrypoints.openai.api_server", "--model", directory, "--enforce-eager",
                       "--dtype", "bfloat16", "--max-model-len", "8192", "--max-num-seqs", "1", "--no-enable-prefix-caching",
                       "--port", str(port), *flags]
            log = open(os.path.join(args.folder, f"vllm_{cache}.log"), "w")
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
            self.servers[cache] = (process, port)
            self.wait(process, port)

    def wait(self, process, port):
        for _ in range(900):
            if process.poll() is not None:
                sys.exit(f"vLLM ended: see {self.args.folder}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                return
            except OSError:
                time.sleep(1)
        sys.exit("vLLM: not healthy within 15 minutes")

    def seconds(self, cache, tokens, n):
        body = {"model": self.directory, "prompt": tokens, "max_tokens": n, "ignore_eos": True, "temperature": 0}
        url = f"http://127.0.0.1:{self.servers[cache][1]}/v1/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        start = time.monotonic()
        urllib.request.urlopen(request, timeout=1800).read()
        return time.monotonic() - start

    def decode_rate(self, cache, depth):
        """From a long answer less a short one; None when that is no positive time in three tries."""
        tokens = some_tokens(max(depth, 1), self.args.vocab)
        for _ in range(3):
            more = self.seconds(cache, tokens, self.args.tokens + 1) - self.seconds(cache, tokens, 1)
            if more > 0:
                return self.args.tokens / more
        return None

    def round(self):
        a, found = self.args, {}
        for cache in self.servers:
            for n in a.prefill:
                found["vLLM", cache, ("pp", n)] = n / self.seconds(cache, some_tokens(n, a.vocab), 1)
            for depth in a.depths:
                rate = self.decode_rate(cache, depth)
                if rate is None:
                    print(f"vLLM {cache} bit, depth {depth}: the prompt's time varied by more than decoding takes: left out", file=sys.stderr)
                else:
                    found["vLLM", cache, ("tg", depth)] = rate
        return found

    def stop(self):
        for process, _ in self.servers.values():
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def report(rounds, args, limits):
    engines = sorted({key[:2] for r in rounds for key in r}, key=lambda k: (["kvscale", "llama.cpp", "vLLM"].index(k[0]), k[1]))
    tests = [("pp", n) for n in args.prefill] + [("tg", d) for d in args.depths]
    print(f"{len(rounds)} rounds, {args.threads} threads, BF16 weights; limits: memory read "
          f"{min(l[0] for l in limits):.1f} to {max(l[0] for l in limits):.1f} GB/s, multiply "
          f"{min(l[1] for l in limits):.0f} to {max(l[1] for l in limits):.0f} GFLOP/s\n")
    print("| test | " + " | ".join(f"{e} {c}" for e, c in engines) + " | 16 bit: ours / best peer | 8 bit: ours / best peer |")
    print("|" + " --- |" * (len(engines) + 3))
    for test in tests:
        name = f"pp{test[1]}" if test[0] == "pp" else f"tg{args.tokens} @ d{test[1]}"
        cells = []
        for e in engines:
            values = [r[(*e, test)] for r in rounds if (*e, test) in r]
            cells.append(f"{statistics.median(values):.1f}" if values else "-")
        for cache in ("16", "8"):
            ratios = []
            for r in rounds:
                peers = [v for (e, c, t), v in r.items() if e != "kvscale" and c == cache and t == test]
                if peers:
                    ratios.append(r["kvscale", cache, test] / max(peers))
            cells.append(f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-")
        print(f"| {name} | " + " | ".join(cells) + " |")


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a .gguf file")
    parser.add_argument("--kvscale", required=True)
    parser.add_argument("--vllm", help="virtual environment of a CPU vLLM")
    parser.add_argument("--hf", help="the same model as a Hugging Face directory, for vLLM")
    parser.add_argument("-p", dest="prefill", type=numbers, default=[512, 2048])
    parser.add_argument("-d", dest="depths", type=numbers, default=[0, 2048, 8000])
    parser.add_argument("-n", dest="tokens", type=int, default=16)
    parser.add_argument("-t", dest="threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", dest="rounds", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=40000, help="tokens of the prompts are below")
    parser.add_argument("--port", type=int, default=18600)
    args = parser.parse_args()
    if bool(args.vllm) != bool(args.hf):
        parser.error("--vllm and --hf go together")
    args.folder = tempfile.mkdtemp(prefix="kvscale_peers_")
    random.seed(1)
    copy = os.path.join(args.folder, "bf16.gguf")
    bf16_gguf(args.model, copy)
    ours = Kvscale(args.kvscale, args.model, args)
    engines = [ours, LlamaCpp(copy, args)]
    if args.vllm:
        engines.append(Vllm(args.vllm, args.hf, args))
    else:
        print("vLLM: left out (no --vllm)", file=sys.stderr)
    rounds = []
    try:
        for i in range(args.rounds):
            found = {}
            for engine in engines:
                found |= engine.round()
            rounds.append(found)
            print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
    finally:
        if args.vllm:
            engines[-1].stop()
    report(rounds, args, ours.limits)


if __name__ == "__main__":
    main()
