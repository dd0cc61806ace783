"""Tokenizers of the byte-level BPE families, put together with the `tokenizers` package as their original
tokenizer.json files have them."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


PIPELINES = {
    "gpt-2": lambda: byte_level(True),
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": lambda: pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)]),
    "qwen2": lambda: pre_tokenizers.Sequence([split(QWEN2), byte_level(False)]),
}


def sentencepiece(first_space):
    """What Gemma, Llama 2 and Mistral put around their BPE: spaces as U+2581, bytes for what is missing."""
    steps = [normalizers.Prepend("\u2581")] if first_space else []
    steps.append(normalizers.Replace(" ", "\u2581"))
    decode = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    return normalizers.Sequence(steps), decoders.Sequence(decode + ([decoders.Strip(" ", 1, 0)] if first_space else []))


def scored(vocab_tokens, num_reserved):
    """Merges as SentencePiece's scores give them: every way to cut a token in two tokens, in the order of ids."""
    known = set(vocab_tokens[num_reserved:])
    return [(token[:i], token[i:]) for token in vocab_tokens[num_reserved:] for i in range(1, len(token))
            if token[:i] in known and token[i:] in known]


def make(pre, model, added=()):
    """A tokenizer of the family that GGUF calls `pre`."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = PIPELINES[pre]()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_tokens([t for t in added if not t.special])
    tokenizer.add_special_tokens([t for t in added if t.special])
    return tokenizer


def from_gguf_keys(keys):
    """The original tokenizer of a GGUF file's vocabulary. keys: pre, tokens, types, merges."""
    vocab = {token: i for i, token in enumerate(keys["tokens"])}
    model = models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in keys["merges"]],
                       ignore_merges=keys["pre"] == "llama-bpe")
    added = [AddedToken(token, special=kind == 3, normalized=False)
             for token, kind in zip(keys["tokens"], keys["types"]) if kind in (3, 4)]
    return make(keys["pre"], model, added)
