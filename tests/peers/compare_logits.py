"""compare_logits.py [--only=gguf|--only=directory] KV_DUMP_LOGITS MODEL.gguf...: logits of real
models, ours against transformers.

For each model, the prompts of prompts.json are tokenized by transformers. Ours gives logits of
every position and a greedy continuation of 64 tokens. transformers then scores prompt and
continuation with the weights of the same file, dequantized, in F32 (the reference) and in BF16 (the
yardstick). The same for a Hugging Face directory with the file's weights rounded to BF16, read by
both sides. Two things must hold:

- the root mean square of ours minus the reference, over all logits of all prompts, is at most 1.5
  times that of the yardstick minus the reference;
- each token that ours chose is the reference's choice too, after the same tokens, wherever the
  reference's two largest logits lie further apart than that allowed error.

Ends with 1 when one of them does not. Needs numpy, torch, transformers, gguf and accelerate.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import transformers

CONTINUATION = 64
MOST_OF_PEER = 1.5
PROMPTS = pathlib.Path(__file__).with_name("prompts.json")


def load(path, dtype):
    """The model of a directory, or of a GGUF file with its weights dequantized."""
    if path.is_dir():
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=dtype,
        quantization_config=transformers.GgufConfig(dequantize=True)).eval()


def write_directory(path, folder):
    """The model of a GGUF file as config.json and BF16 safetensors."""
    model = load(path, torch.bfloat16)
    config = {key: value for key, value in model.config.to_dict().items()
              if key not in ("quantization_config", "_name_or_path")}
    (folder / "config.json").write_text(json.dumps(config, default=str))
    tied = model.config.tie_word_embeddings
    weights = {name: value.to(torch.bfloat16).contiguous()
               for name, value in model.state_dict().items()
               if not (tied and name == "lm_head.weight")}
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})


def tokenize(path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    prompts = json.loads(PROMPTS.read_text())
    return [{"name": p["name"], "ids": tokenizer(p["text"]).input_ids} for p in prompts]


def run_ours(program, path, prompts, folder):
    """Continuations; the logits are left in the folder."""
    (folder / "prompts.json").write_text(json.dumps(prompts))
    subprocess.run([program, path, folder / "prompts.json", folder, str(CONTINUATION)], check=True)
    return json.loads((folder / "continuations.json").read_text())


@torch.no_grad()
def score(model, sequences, folder, name):
    """Writes logits of all positions of each sequence to FOLDER/NAME-i.npy."""
    for i, ids in enumerate(sequences):
        np.save(folder / f"{name}-{i}.npy", model(torch.tensor([ids])).logits[0].float().numpy())


def squared_error(found, reference):
    """Sum of squares, row by row to spare memory."""
    return sum(float(np.sum((a.astype(np.float64) - b) ** 2)) for a, b in zip(found, reference))


def compare_prompt(folder, i, count, continuation):
    """(squares of ours, squares of the peer, values, [margin, agrees] per continued token)."""
    reference = np.load(folder / f"reference-{i}.npy", mmap_mode="r")
    peer = np.load(folder / f"peer-{i}.npy", mmap_mode="r")
    ours = np.fromfile(folder / f"{i}.f32", dtype="<f4").reshape(count, -1)
    if not np.isfinite(ours).all():
        raise ValueError(f"prompt {i}: logits of ours that are not finite")
    steps = []
    for row, token in zip(reference[count - 1:], continuation):
        second, first = np.sort(np.partition(row, -2)[-2:])
        steps.append((float(first - second), int(np.argmax(row)) == token))
    return (squared_error(ours, reference[:count]), squared_error(peer[:count], reference[:count]),
            ours.size, steps)


def report(path, prompts, results):
    """Prints one line per prompt and the two verdicts; returns whether both hold."""
    rms = lambda which: (sum(r[which] for r in results) / sum(r[2] for r in results)) ** 0.5
    for prompt, (ours, peer, values, steps) in zip(prompts, results):
        print(f"  {prompt['name']:20} {len(prompt['ids']):4} tokens  rms {(ours / values) ** .5:.5f}"
              f"  BF16 peer {(peer / values) ** .5:.5f}  continuation agrees in "
              f"{sum(agrees for _, agrees in steps)} of {len(steps)}")
    allowed = MOST_OF_PEER * rms(1)
    missed = [margin for *_, steps in results for margin, agrees in steps if not agrees]
    print(f"{path.name}: rms error {rms(0):.5f}, BF16 peer {rms(1):.5f}, "
          f"ratio {rms(0) / rms(1):.3f} (at most {MOST_OF_PEER}); "
          f"{len(missed)} of {len(results) * CONTINUATION} continued tokens differ, "
          f"the largest margin among them {max(missed, default=0):.4f} (at most {allowed:.4f})",
          flush=True)
    return rms(0) <= allowed and max(missed, default=0) <= allowed


def check_directory(program, path):
    """The model of a GGUF file, by way of a directory."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / f"{path.stem} as a directory"
        folder.mkdir()
        write_directory(path, folder)
        return check_model(program, folder, tokenize(path))


def check_model(program, path, prompts):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        continuations = run_ours(program, path, prompts, folder)
        for i, continuation in enumerate(continuations):
            if len(continuation) != CONTINUATION:
                raise ValueError(f"prompt {i}: {len(continuation)} tokens continued")
        sequences = [p["ids"] + c for p, c in zip(prompts, continuations)]
        score(load(path, torch.float32), sequences, folder, "reference")
        score(load(path, torch.bfloat16), sequences, folder, "peer")
        results = [compare_prompt(folder, i, len(prompt["ids"]), continuations[i])
                   for i, prompt in enumerate(prompts)]
    return report(path, prompts, results)


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--only=")]
    only = [a.split("=")[1] for a in sys.argv[1:] if a.startswith("--only=")]
    program, models = arguments[0], [pathlib.Path(p).resolve() for p in arguments[1:]]
    held = []
    for path in models:
        if "directory" not in only:
            held.append(check_model(program, path, tokenize(path)))
        if "gguf" not in only:
            held.append(check_directory(program, path))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
