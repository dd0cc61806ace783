"""peer_tokenizers.py KV_TOKENIZE MODEL.gguf...: ids of about 5 MB of mixed text, ours against the `tokenizers`
package's, with the vocabularies of real models, read both from the GGUF file's keys and from the peer's
tokenizer.json, and with the small tokenizers of tests/golden/text. Ends with 1 when one id differs.

The text: prose, code and translations that lie on every Debian machine, characters of all scripts and emoji
sequences by a fixed seed, spoiled bytes (which become U+FFFD on both sides)."""

import glob
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import gguf
import numpy as np
from tokenizers import Tokenizer

import peer_pipelines

FAMILIES = ["gpt-2", "llama-bpe", "qwen2", "gemma", "llama-2", "mistral"]
EMOJI = [chr(c) for c in [*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), *range(0x2600, 0x27C0)]]
SCRIPTS = [(0x4E00, 0x9FFF), (0x3040, 0x30FF), (0xAC00, 0xD7A3), (0x400, 0x4FF), (0x600, 0x6FF), (0x900, 0x97F),
           (0xE00, 0xE7F), (0x590, 0x5FF), (0x370, 0x3FF), (0x300, 0x36F), (0x1100, 0x11FF), (0x2000, 0x206F)]


def read(path, limit):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        return file.read(limit)


def gather(patterns, total, rng, per_file=60_000):
    """Up to `total` bytes of the files that match, in an order by the seed."""
    paths = sorted({p for pattern in patterns for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)})
    rng.shuffle(paths)
    out = b""
    for path in paths:
        if len(out) >= total:
            break
        out += read(path, per_file)
    return out[:total]


def made_up(total, rng):
    """Words of random characters of one script each, emoji with joiners and skin tones, any code point at all."""
    out, size = [], 0
    while size < total:
        kind = rng.random()
        if kind < 0.55:
            low, high = rng.choice(SCRIPTS)
            word = "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))
        elif kind < 0.8:
            word = "\u200d".join(rng.choice(EMOJI) + rng.choice(["", "\ufe0f", "\U0001f3fd"])
                                 for _ in range(rng.randint(1, 4)))
        elif kind < 0.9:
            word = "".join(chr(c) for c in (rng.randint(0, 0x10FFFF) for _ in range(6)) if not 0xD800 <= c < 0xE000)
        else:
            word = str(rng.randint(0, 10 ** rng.randint(1, 12)))
        out.append(word + rng.choice(["", " ", " ", "\n", "\r\n", "  ", "\t", "\u3000", "'s ", "<|im_end|>"]))
        size += len(out[-1].encode())
    return "".join(out).encode()


def mixed_text(seed=20261130):
    rng = random.Random(seed)
    prose = gather(["/usr/share/common-licenses/*", "/usr/share/doc/**/copyright", "/usr/share/doc/**/*.gz",
                    "/usr/share/perl/**/*.pod"], 1_600_000, rng)
    code = gather(["/usr/include/**/*.h", "/usr/lib/python3*/**/*.py", "/usr/share/perl/**/*.pm",
                   "/usr/share/cmake*/**/*.cmake"], 1_600_000, rng)
    tables = gather(["/usr/share/i18n/locales/*", "/usr/share/perl/*/unicore/*.txt", "/usr/share/locale/**/*.mo",
                     "/usr/share/misc/*"], 800_000, rng)
    text = bytearray(prose + code + tables + made_up(1_200_000, rng))
    for _ in range(2000):
        text[rng.randrange(len(text))] = rng.choice([0xC0, 0xE2, 0xF0, 0xFF, 0x80, 0xED])
    return bytes(text)


def gguf_keys(path):
    fields = gguf.GGUFReader(path).fields
    get = lambda name: fields["tokenizer.ggml." + name].contents()
    return {"model": get("model"), "pre": get("pre"), "tokens": get("tokens"), "types": get("token_type"),
            "merges": get("merges"), "add_bos": get("add_bos_token"), "bos_id": int(get("bos_token_id"))}


def peer_ids(tokenizer, text, pieces):
    """The peer needs minutes for one long text; lines of a document are no piece of their own, so the text is cut
    once into documents and both sides get the same."""
    return [tokenizer.encode(piece).ids for piece in pieces(text)]


def documents(text, size=50_000):
    return [text[i:i + size] for i in range(0, len(text), size)]


def our_ids(program, vocab_path, text, folder):
    text_path, ids_path = os.path.join(folder, "text"), os.path.join(folder, "ids")
    with open(text_path, "wb") as file:
        file.write(text)
    done = subprocess.run([program, vocab_path, text_path, ids_path], capture_output=True, text=True, check=True)
    return np.fromfile(ids_path, dtype="<i4"), json.loads(done.stdout)


def compare(name, ours, peer):
    n = min(len(ours), len(peer))
    differing = np.flatnonzero(ours[:n] != peer[:n])
    if len(ours) == len(peer) and not len(differing):
        return True
    at = int(differing[0]) if len(differing) else n
    print(f"{name}: {len(ours)} ids, peer {len(peer)}; first difference at {at}: "
          f"{ours[at - 3:at + 5].tolist()}, peer {peer[at - 3:at + 5].tolist()}")
    return False


def check_model(program, path, raw):
    keys = gguf_keys(path)
    peer = peer_pipelines.from_gguf_keys(keys)
    start = time.time()
    expected = np.array(peer.encode(raw.decode("utf-8", "replace")).ids, dtype=np.int32)
    peer_speed = len(raw) / 1e6 / (time.time() - start)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        gguf_path, json_path = os.path.join(folder, "gguf-keys.json"), os.path.join(folder, "tokenizer.json")
        with open(gguf_path, "w") as file:
            json.dump(keys, file)
        peer.save(json_path)
        for source in (gguf_path, json_path):
            name = f"{os.path.basename(path)} ({os.path.basename(source)})"
            ours, facts = our_ids(program, source, raw, folder)
            same = compare(name, ours, expected)
            good = good and same
            print(f"{name}: {len(raw)} bytes, {len(expected)} ids, {'equal' if same else 'DIFFERENT'}; "
                  f"{facts['mb_per_s']} MB/s, peer {peer_speed:.2f} MB/s, loaded in {facts['load_ms']} ms")
    return good


def check_family(program, path, raw):
    """A small tokenizer of a family whose real files are not to be had without an account, on the same text."""
    start = time.time()
    expected = np.array(Tokenizer.from_file(path).encode(raw.decode("utf-8", "replace")).ids, dtype=np.int32)
    peer_speed = len(raw) / 1e6 / (time.time() - start)
    with tempfile.TemporaryDirectory() as folder:
        ours, facts = our_ids(program, path, raw, folder)
    name = os.path.basename(path)
    same = compare(name, ours, expected)
    print(f"{name}: {len(raw)} bytes, {len(expected)} ids, {'equal' if same else 'DIFFERENT'}; "
          f"{facts['mb_per_s']} MB/s, peer {peer_speed:.2f} MB/s")
    return same


def main():
    program, models = sys.argv[1], sys.argv[2:]
    raw = mixed_text()
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "text")
    families = [os.path.join(golden, f"tokenizer-{name}.json") for name in FAMILIES]
    same = [check_family(program, path, raw) for path in families] + [check_model(program, path, raw) for path in models]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
