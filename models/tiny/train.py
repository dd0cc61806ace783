"""Trains the built-in model from nothing, on one GPU, in a given time.

Usage: python3 train.py --tokens build/tokens.npz --out DIR [--minutes 8]

Every batch holds about the same number of tokens. Its length grows with the time that has passed
(PHASES), with shorter ones mixed in: looking up is learnt where it is easy and then stretched.
Answers weigh 1, everything else 0.1. The learning rate follows a cosine over the time given. At
the end, and when interrupted, the weights are rounded to BF16 and written to DIR; then the share
of answers that come out exactly is measured at every length and written to DIR/eval.json.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import signal
import sys
import time

import numpy as np
import torch
from torch.nn import functional

import documents
import model as llama

# (tokens of a document, share of the time)
PHASES = [(256, 0.25), (512, 0.15), (1024, 0.15), (2048, 0.15), (4096, 0.18), (8192, 0.12)]
SHORTER = 0.3  # share of the batches that are shorter than their phase says
PEAK_RATE, WARMUP_STEPS = 2e-3, 200
ROLE_WEIGHTS = [0.0, 0.1, 1.0]  # by documents.TEXT, documents.ANSWER


def length_at(progress, rng, longest):
    """Document length of a batch drawn when `progress` of the time has passed."""
    lengths = [length for length, _ in PHASES if length <= longest]
    passed = np.cumsum([share for _, share in PHASES[:len(lengths)]])
    phase = min(int(np.searchsorted(passed / passed[-1], progress, "right")), len(lengths) - 1)
    if phase and rng.random() < SHORTER:
        phase = int(rng.integers(phase))
    return lengths[phase]


class Batches(torch.utils.data.Dataset):
    """Batch i has its own seed; only its length depends on the clock."""

    def __init__(self, tables, options, progress):
        self.tables, self.options, self.progress = tables, options, progress

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        rng = np.random.default_rng((self.options.seed, index))
        length = length_at(self.progress.value, rng, self.options.longest)
        number = max(1, self.options.batch_tokens // length)
        tokens, roles = documents.batch(self.tables, rng, documents.training_document, number,
                                        length)
        return torch.from_numpy(tokens), torch.from_numpy(roles)


def make_loader(tables, options, progress):
    return torch.utils.data.DataLoader(
        Batches(tables, options, progress), batch_size=None, num_workers=options.workers,
        prefetch_factor=4 if options.workers else None, pin_memory=options.device == "cuda",
        multiprocessing_context="fork" if options.workers else None)


def compute_loss(model, tokens, roles, weights):
    """Weighted cross-entropy, and over the answers: cross-entropy and share of tokens right."""
    targets, roles = tokens[:, 1:].reshape(-1), roles[:, 1:].reshape(-1).long()
    with torch.autocast(tokens.device.type, torch.bfloat16):
        logits = model(tokens)[:, :-1].reshape(len(targets), -1)
    losses = functional.cross_entropy(logits.float(), targets, reduction="none")
    weight = weights[roles]
    answers = roles == documents.ANSWER
    total = answers.sum().clamp(min=1)
    right = ((logits.argmax(-1) == targets) & answers).sum() / total
    return ((losses * weight).sum() / weight.sum(), (losses * answers).sum().detach() / total,
            right)


def make_optimizer(model, device):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), fused=device == "cuda")


def rate_at(progress, step):
    cosine = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return PEAK_RATE * cosine * min(1.0, (step + 1) / WARMUP_STEPS)


def set_compiled(model, is_compiled):
    """Compiles the layers' forward, or takes that back; parameters keep their names."""
    for layer in model.model.layers:
        if is_compiled:
            layer.compile(dynamic=False)
        else:
            layer._compiled_call_impl = None


def try_compile(model, options):
    """Compiles when that works here; a machine without a compiler trains more slowly."""
    if options.compile == "no" or options.device != "cuda":
        return
    try:
        torch._dynamo.config.recompile_limit = 64  # one variant per document length
        set_compiled(model, True)
        tokens = torch.zeros(options.batch_tokens // 256, 256, dtype=torch.long, device="cuda")
        weights = torch.ones(3, device="cuda")
        compute_loss(model, tokens, tokens + 1, weights)[0].backward()
        model.zero_grad(set_to_none=True)
        print("layers compiled", flush=True)
    except Exception as error:  # whatever the compiler raises: say so and go on without it
        print(f"not compiled: {type(error).__name__}: {str(error)[:300]}", flush=True)
        set_compiled(model, False)


class Clock:
    """Share of the time that has passed; a signal ends it early."""

    def __init__(self, minutes, shared, max_steps):
        self.start, self.seconds, self.shared = time.monotonic(), 60 * minutes, shared
        self.max_steps, self.stopped = max_steps, False

    def listen(self):
        """From now on SIGINT and SIGTERM end the training; not for processes forked earlier."""
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._stop)

    def _stop(self, *_):
        self.stopped = True

    def elapsed(self):
        return time.monotonic() - self.start

    def tick(self, step):
        """Progress in [0, 1]; 1 when training ends."""
        done = self.stopped or step >= self.max_steps
        self.shared.value = 1.0 if done else min(1.0, self.elapsed() / self.seconds)
        return self.shared.value


def train(model, batches, clock, options):
    optimizer = make_optimizer(model, options.device)
    weights = torch.tensor(ROLE_WEIGHTS, device=options.device)
    step, tokens_seen, shown, waited = 0, 0, 0.0, 0.0
    while (progress := clock.tick(step)) < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = rate_at(progress, step)
        before = time.monotonic()
        tokens, roles = (x.to(options.device, non_blocking=True) for x in next(batches))
        waited += time.monotonic() - before
        loss, answer_loss, right = compute_loss(model, tokens.long(), roles, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, tokens_seen = step + 1, tokens_seen + tokens.numel()
        if clock.elapsed() - shown > options.show_seconds:
            shown = clock.elapsed()
            print(f"{shown:6.0f} s  step {step:6d}  length {tokens.shape[1]:5d}  "
                  f"loss {loss.item():.4f}  answers {answer_loss.item():.4f}  "
                  f"right {right.item():.4f}  {tokens_seen / shown / 1e6:.2f} M tokens/s  "
                  f"waited {waited:.1f} s", flush=True)
    return {"steps": step, "tokens": tokens_seen, "seconds": round(clock.elapsed(), 1)}


def answer_runs(roles):
    """(first, last + 1) of every answer of one document."""
    edges = np.diff(np.concatenate(([0], roles == documents.ANSWER, [0])).astype(np.int8))
    return list(zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)))


@torch.no_grad()
def exact_answers(model, tables, task, length, number, options):
    """Counts of answers and of those whose every token is the likeliest one.

    The answers before the one in question are given, so this is what greedy decoding would do.
    `first` counts the first question of every document alone.
    """
    rng = np.random.default_rng((options.seed, 77, length, len(task)))
    per_call = max(1, options.batch_tokens // (2 * length))
    counts = dict(answers=0, exact=0, first=0, first_exact=0)
    for start in range(0, number, per_call):
        tokens, roles = documents.batch(tables, rng, documents.evaluation_document,
                                        min(per_call, number - start), length, task)
        with torch.autocast(options.device, torch.bfloat16):
            logits = model(torch.from_numpy(tokens).long().to(options.device))
        best = logits.argmax(-1).cpu().numpy()
        for row in range(len(tokens)):
            good = np.concatenate(([False], best[row, :-1] == tokens[row, 1:]))
            hits = [bool(good[a:b].all()) for a, b in answer_runs(roles[row])]
            counts["answers"] += len(hits)
            counts["exact"] += sum(hits)
            counts["first"] += 1
            counts["first_exact"] += hits[0]
    return counts


@torch.no_grad()
def cache_ranges(model, tables, options):
    """Per layer and side: amax and rms of what a cache would hold for some training documents."""
    ranges = []

    def observer(k, v):
        ranges.append({side + name: round(float(value), 4) for side, x in (("k_", k), ("v_", v))
                       for name, value in (("amax", x.abs().max()),
                                           ("rms", x.float().square().mean().sqrt()))})

    for layer in model.model.layers:
        layer.self_attn.observe = observer
    rng = np.random.default_rng((options.seed, 78))
    tokens, _ = documents.batch(tables, rng, documents.training_document, 16,
                                min(1024, options.longest))
    with torch.autocast(options.device, torch.bfloat16):
        model(torch.from_numpy(tokens).long().to(options.device))
    for layer in model.model.layers:
        layer.self_attn.observe = None
    return ranges


def evaluate(model, tables, options):
    """Exact answers per arm, task and length, with a plain cache and an E4M3 cache of scale 1."""
    set_compiled(model, False)
    result = {"cache_ranges": cache_ranges(model, tables, options), "exact": {}}
    for arm, scale in (("bf16", None), ("fp8_scale1", 1.0)):
        for layer in model.model.layers:
            layer.self_attn.cache_scale = scale
        for task in ("kv_recall", "copy_span", "niah_single"):
            for length, _ in PHASES:
                if length > options.longest:
                    continue
                number = max(options.eval_tokens // length, 1)
                counts = exact_answers(model, tables, task, length, number, options)
                result["exact"].setdefault(arm, {}).setdefault(task, {})[str(length)] = counts
                print(f"{arm:10} {task:11} {length:5d}: {counts['exact']} of {counts['answers']} "
                      f"exact ({counts['exact'] / counts['answers']:.4f}), first question "
                      f"{counts['first_exact']} of {counts['first']}", flush=True)
    return result


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--init", type=pathlib.Path, help="model.safetensors to start from")
    parser.add_argument("--minutes", type=float, default=8, help="from the start of the program")
    parser.add_argument("--max-steps", type=int, default=1 << 40)
    parser.add_argument("--seed", type=int, default=20260)
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--eval-tokens", type=int, default=262144, help="per task and length")
    parser.add_argument("--compile", choices=["yes", "no"], default="yes")
    parser.add_argument("--show-seconds", type=float, default=10)
    parser.add_argument("--workers", type=int, default=max(0, min(14, os.cpu_count() - 2)))
    options = parser.parse_args()
    options.device = "cuda" if torch.cuda.is_available() else "cpu"
    return options


def main():
    options = parse_options()
    progress = multiprocessing.get_context("fork").Value("d", 0.0)
    clock = Clock(options.minutes, progress, options.max_steps)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    folder = pathlib.Path(__file__).parent
    tables = documents.Tables.load(folder / "tokenizer.json", options.tokens)
    # The workers fork before this process touches the GPU.
    batches = iter(make_loader(tables, options, progress))
    clock.listen()
    model = llama.Llama(llama.CONFIG)
    if options.init:
        model.load_state_dict(llama.read_safetensors(options.init))
    model.to(options.device)
    print(sum(p.numel() for p in model.parameters()), "parameters on", options.device,
          torch.__version__, flush=True)
    try_compile(model, options)
    try:
        record = train(model, batches, clock, options)
    finally:
        llama.save(options.out, model)
        print("saved after", round(clock.elapsed(), 1), "s", flush=True)
    # What is measured is what was written.
    model.load_state_dict(llama.read_safetensors(options.out / "model.safetensors"))
    record |= {"torch": torch.__version__, "seed": options.seed, "interrupted": clock.stopped}
    if not clock.stopped:
        record |= evaluate(model, tables, options)
    (options.out / "eval.json").write_text(json.dumps(record, indent=1) + "\n")
    print("done after", round(clock.elapsed(), 1), "s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
