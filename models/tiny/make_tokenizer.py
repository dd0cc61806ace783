"""Makes the built-in model's tokenizer and the token file that it is trained on.

Usage: python3 make_tokenizer.py CORPUS.txt.xz OUT_DIR TOKENS.npz

Byte-level BPE with 1,024 entries: 3 special tokens, 256 bytes and 765 merges. The first 170 merges
are given (see FORMATS.md, "Words"): 85 syllables, then the same with a leading space. The others
are learnt from the corpus; a merge that would join two syllables is never taken, so that made-up
words keep one token per syllable. Needs the `tokenizers` package and numpy.
"""

import collections
import json
import lzma
import pathlib
import sys

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

VOCAB_SIZE = 1024
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONSONANTS, VOWELS = "bdfghjklmnprstvwz", "aeiou"
SYLLABLES = [c + v for c in CONSONANTS for v in VOWELS]
SPACE = "\u0120"  # how the byte-level alphabet writes a space
# Every message between <|im_start|>ROLE and <|im_end|>, no default system message.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def split_text():
    """Digits stand alone; the rest is split as GPT-2 does."""
    return pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])


def byte_alphabet():
    """The 256 characters that stand for bytes, in the order of the bytes they stand for."""
    kept = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    moved = [b for b in range(256) if b not in kept]
    names = {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(moved)}
    return [names[b] for b in range(256)]


def is_syllables(symbol):
    """Whether a symbol is made of whole syllables, perhaps after a space."""
    body = symbol.removeprefix(SPACE)
    pairs = [body[i:i + 2] for i in range(0, len(body), 2)]
    return bool(body) and all(pair in SYLLABLES for pair in pairs)


def merge(symbols, pair):
    """`symbols` with every occurrence of `pair` joined, left to right."""
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Learner:
    """Words of the corpus with their counts, and where each pair of neighbours occurs."""

    def __init__(self, counts):
        self.words = [list(word) for word in counts]
        self.counts = list(counts.values())
        self.pair_counts = collections.Counter()
        self.where = collections.defaultdict(set)
        for index in range(len(self.words)):
            self._count(index, 1)

    def _count(self, index, sign):
        for pair in zip(self.words[index], self.words[index][1:]):
            self.pair_counts[pair] += sign * self.counts[index]
            self.where[pair].add(index)

    def apply(self, pair):
        for index in self.where.pop(pair, ()):
            self._count(index, -1)
            self.words[index] = merge(self.words[index], pair)
            self._count(index, 1)

    def best(self):
        allowed = (p for p in self.pair_counts if not (is_syllables(p[0]) and is_syllables(p[1])))
        return max(allowed, key=lambda pair: (self.pair_counts[pair], pair))


def learn_merges(counts, number):
    learner = Learner(counts)
    merges = [(s[0], s[1]) for s in SYLLABLES] + [(SPACE, s) for s in SYLLABLES]
    for pair in merges:
        learner.apply(pair)
    while len(merges) < number:
        merges.append(learner.best())
        learner.apply(merges[-1])
    return merges


def count_words(documents):
    splitter, counts = split_text(), collections.Counter()
    for document in documents:
        counts.update(word for word, _ in splitter.pre_tokenize_str(document))
    return counts


def make_tokenizer(documents):
    merges = learn_merges(count_words(documents), VOCAB_SIZE - 256 - len(SPECIAL))
    entries = SPECIAL + byte_alphabet() + [a + b for a, b in merges]
    vocab = {entry: index for index, entry in enumerate(entries)}
    if len(vocab) != VOCAB_SIZE:
        raise ValueError(f"expected {VOCAB_SIZE} different entries, found {len(vocab)}")
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = split_text()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def write_tokens(tokenizer, documents, path):
    """All documents as one row of ids, each ended by <|endoftext|> (id 0)."""
    ids = []
    for document in documents:
        ids.extend(tokenizer.encode(document).ids + [0])
    np.savez_compressed(path, tokens=np.array(ids, dtype=np.uint16))
    print(len(documents), "documents,", len(ids), "tokens,", sum(map(len, documents)), "characters")


def write_config(out):
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192,
              "bos_token": SPECIAL[0], "eos_token": SPECIAL[0], "pad_token": SPECIAL[0],
              "add_bos_token": False, "clean_up_tokenization_spaces": False,
              "chat_template": CHAT_TEMPLATE}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    corpus, out, tokens = map(pathlib.Path, sys.argv[1:4])
    documents = lzma.decompress(corpus.read_bytes()).decode().split("\0")
    tokenizer = make_tokenizer(documents)
    tokenizer.save(str(out / "tokenizer.json"))
    write_config(out)
    write_tokens(tokenizer, documents, tokens)


if __name__ == "__main__":
    main()
