"""Writes the recorded results that the tests of range health and of similarity are held against.

Usage: python3 make_golden.py OUT_DIR

One attention layer on random data with a constant offset on some key channels and one KV head far
larger than the other, in float64 from the definitions; E4M3 comes from the ml_dtypes package.
Needs numpy and ml_dtypes. OUT_DIR gets range_input.bin (BF16 q, k, v, then F32 residual and
projection, row-major), range_expected.json, and similarity.json: pairs of texts with the ratio that
difflib gives without junk.
"""

import difflib
import json
import pathlib
import random
import sys

import ml_dtypes
import numpy as np

TOKENS, Q_HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 150, 4, 2, 24, 40
FIRST_QUERY, STRIDE = 20, 9
SOFTMAX_SCALE = np.float32(HEAD_DIM ** -0.5)
LAYOUTS = ("fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head")


def make_input():
    """q, k, v as BF16, residual and projection as F32."""
    random = np.random.default_rng(20)
    q = random.normal(0, 1.3, (TOKENS, Q_HEADS, HEAD_DIM))
    k = random.normal(0, 1.0, (TOKENS, KV_HEADS, HEAD_DIM))
    v = random.normal(0, 0.7, (TOKENS, KV_HEADS, HEAD_DIM))
    k[:, 0, 3] += 170.0
    k[:, 0, 11] -= 700.0  # clips at scale 1
    k[:, 1] *= 0.004      # starved by a scale shared with head 0
    v[:, 1] *= 30.0
    v[::13, 0, 5] = 0.0
    residual = random.normal(0, 2.0, (TOKENS, HIDDEN))
    projection = random.normal(0, 0.2, (Q_HEADS * HEAD_DIM, HIDDEN))
    bf16 = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    return bf16 + [x.astype(np.float32) for x in (residual, projection)]


def to_e4m3(y, truncate):
    """F32 values to what E4M3 keeps of them, saturating."""
    y = np.clip(y, np.float32(-448), np.float32(448))
    codes = y.astype(ml_dtypes.float8_e4m3fn)
    if truncate:  # a code that was rounded away from zero steps back by one
        away = np.abs(codes.astype(np.float32)) > np.abs(y)
        codes = (codes.view(np.uint8) - away.astype(np.uint8)).view(ml_dtypes.float8_e4m3fn)
    return codes.astype(np.float32)


def scale_of(layout, x):
    """x [tokens, kv_heads, head_dim] F32 -> scale, to be broadcast against x."""
    if layout == "fp8_scale1":
        return np.float32(1)
    if layout == "fp8_tensor":
        return np.float32(np.abs(x).max() / np.float32(448))
    if layout == "fp8_head":
        return (np.abs(x).max(axis=(0, 2)) / np.float32(448)).astype(np.float32)[None, :, None]
    amax = np.abs(x).max(axis=2, keepdims=True)
    return np.maximum(amax / np.float32(448), np.float32(1e-6))


def store(layout, x, truncate):
    """Returns (what the layout gives back, scaled values, codes' values)."""
    scale = scale_of(layout, x)
    y = x * (np.float32(1) / scale) if layout == "fp8_token_head" else x / scale
    kept = to_e4m3(y, truncate)
    return kept * scale, y, kept


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class Attention:
    """The sampled queries' attention in float64."""

    def __init__(self, q, k, v):
        self.rows = np.arange(FIRST_QUERY, TOKENS, STRIDE)
        self.visible = np.arange(TOKENS)[None] <= self.rows[:, None]
        self.q, self.k, self.v = (x.astype(np.float64) for x in (q, k, v))

    def scores(self, head, k):
        out = self.q[self.rows, head] @ k[:, head // (Q_HEADS // KV_HEADS)].T * SOFTMAX_SCALE
        return np.where(self.visible, out, -np.inf)

    def outputs(self, k, v):
        heads = [softmax(self.scores(h, k)) @ v[:, h // (Q_HEADS // KV_HEADS)]
                 for h in range(Q_HEADS)]
        return np.concatenate(heads, axis=-1)

    def score_noise(self, head, kept):
        p = softmax(self.scores(head, self.k))
        error = np.where(self.visible, self.scores(head, kept.astype(np.float64) - self.k), 0)
        mean = (p * error).sum(-1, keepdims=True)
        return np.sqrt((p * (error - mean) ** 2).sum(-1).mean())

    def value_noise(self, head, kept):
        p, kv = softmax(self.scores(head, self.k)), head // (Q_HEADS // KV_HEADS)
        lost = ((p @ (kept.astype(np.float64) - self.v)[:, kv]) ** 2).sum(-1)
        return np.sqrt((lost / ((p @ self.v[:, kv]) ** 2).sum(-1)).mean())


def decibels(signal, error):
    return float(10 * np.log10(signal / error))


def side_record(x, kept, y, codes, noise_heads, damage):
    x64 = x.astype(np.float64)
    error = ((kept.astype(np.float64) - x64) ** 2)
    centred = (x64 - x64.mean(axis=0)) ** 2
    return {
        "noise_heads": noise_heads,
        "noise_mean": float(np.sqrt(np.mean(np.square(noise_heads)))),
        "noise_worst": float(max(noise_heads)),
        "block_damage": damage,
        "sqnr_db": decibels((x64 ** 2).sum(), error.sum()),
        "centred_sqnr_db": decibels(centred.sum(), error.sum()),
        "sqnr_db_heads": [decibels((x64[:, h] ** 2).sum(), error[:, h].sum())
                          for h in range(KV_HEADS)],
        "clip_frac": float((np.abs(y) > 448).mean()),
        "clip_frac_heads": [float((np.abs(y[:, h]) > 448).mean()) for h in range(KV_HEADS)],
        "zero_frac": float(((codes == 0) & (x != 0)).mean()),
        "amax": float(np.abs(x).max()),
        "amax_heads": [float(np.abs(x[:, h]).max()) for h in range(KV_HEADS)],
    }


def measure(layout, truncate, q, k, v, residual, projection):
    attention = Attention(q, k, v)
    k32, v32 = k.astype(np.float32), v.astype(np.float32)
    kept_k, y_k, codes_k = store(layout, k32, truncate)
    kept_v, y_v, codes_v = store(layout, v32, truncate)
    w, r = projection.astype(np.float64), residual.astype(np.float64)[attention.rows]
    exact = attention.outputs(attention.k, attention.v) @ w
    after = np.linalg.norm(r + exact, axis=-1)

    def damage(some_k, some_v):
        out = attention.outputs(some_k.astype(np.float64), some_v.astype(np.float64)) @ w
        return float(np.sqrt(np.mean((np.linalg.norm(out - exact, axis=-1) / after) ** 2)))

    score = [float(attention.score_noise(h, kept_k)) for h in range(Q_HEADS)]
    value = [float(attention.value_noise(h, kept_v)) for h in range(Q_HEADS)]
    return {"k": side_record(k32, kept_k, y_k, codes_k, score, damage(kept_k, v32)),
            "v": side_record(v32, kept_v, y_v, codes_v, value, damage(k32, kept_v)),
            "kv": {"block_damage": damage(kept_k, kept_v)}}


def text_pairs():
    """Fixed corner cases, sentences edited at random, and texts of very few letters, where many
    common blocks have the same length."""
    draw = random.Random(5)
    words = ("the old miller painted a quiet bridge near tower harbor and nobody "
             "saw größe naïve 東京 橋 😀 lantern").split()
    pairs = [("abcd efgh", "abcd xefg"), ("", ""), ("", "a"), ("a", ""), ("same", "same"),
             ("abc", "xyz"), ("größer", "grösser"), ("東京の橋", "京都の橋"), ("😀a", "a😀"),
             ("ab" * 40, "ba" * 40), ("a" * 300, "a" * 299 + "b")]
    for _ in range(40):
        a = [draw.choice(words) for _ in range(draw.randint(1, 25))]
        b = [w for w in a if draw.random() < 0.8]
        for _ in range(draw.randint(0, 6)):
            b.insert(draw.randint(0, len(b)), draw.choice(words))
        pairs.append((" ".join(a), " ".join(b)))
    for _ in range(60):
        pairs.append(tuple("".join(draw.choice("abc") for _ in range(draw.randint(0, 30)))
                           for _ in range(2)))
    return pairs


def write_similarity(out):
    rows = [{"a": a, "b": b, "ratio": difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()}
            for a, b in text_pairs()]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (out / "similarity.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    write_similarity(out)
    arrays = make_input()
    (out / "range_input.bin").write_bytes(b"".join(x.tobytes() for x in arrays))
    expected = {
        "tokens": TOKENS, "q_heads": Q_HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "hidden": HIDDEN, "first_query": FIRST_QUERY, "stride": STRIDE,
        "softmax_scale": float(SOFTMAX_SCALE),
        "scales": {layout: {side: np.broadcast_to(np.ravel(scale_of(layout, x.astype(np.float32))),
                                                  KV_HEADS).astype(float).tolist()
                            for side, x in (("k", arrays[1]), ("v", arrays[2]))}
                   for layout in LAYOUTS[:3]},
        "nearest": {layout: measure(layout, False, *arrays) for layout in LAYOUTS},
        "truncate": {layout: measure(layout, True, *arrays) for layout in LAYOUTS},
    }
    (out / "range_expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
