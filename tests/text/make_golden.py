"""make_golden.py OUT [MODEL.gguf...]: records what the reference implementations answer.

tokenizer-NAME.json, ids-NAME.json  small byte-level BPEs of each family, trained here on made-up text with the
                                    `tokenizers` package, and its ids for strings.json
variants.json                       other pre-tokenizers over one of these vocabularies
character-variants.json             other normalizers, pre-tokenizers and decoders over characters
classes.json                        its character classes, as ranges over all code points
digests.json                        SHA-256 over normalized (tokenizers) and repaired (Python) text of whole domains
jinja.json                          conversations over templates/*.jinja and pieces of the language, by jinja2
chat.json                           conversations rendered by transformers from the templates of the models given
                                    (left as it is when none is given)
Texts that are not UTF-8 are written in Latin-1, one character a byte."""

import hashlib
import itertools
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import chat_golden
import peer_pipelines

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
SYLLABLES = "ka ro mi ten sul va qu est ing the er on al pre tion ver st un ly".split()


def corpus(rng, lines=3000):
    words = ["".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 4))) for _ in range(400)]
    words += ["don't", "we'll", "I'M", "it's", "für", "naïve", "перевод", "слово", "日本語", "漢字", "한국어", "مرحبا", "🙂", "👩‍💻"]
    for _ in range(lines):
        line = " ".join(rng.choice(words) for _ in range(rng.randint(3, 12)))
        kind = rng.random()
        if kind < 0.3:
            line = "    if (" + line.replace(" ", "_")[:20] + f" == {rng.randint(0, 99999)}) {{ return x[{rng.randint(0, 9)}]; }}"
        elif kind < 0.5:
            line = line.capitalize() + "." + rng.choice(["", "\n\n", "  ", "\r\n", "\t"])
        yield line


def strings(rng):
    """The nasty ones first, then random mixtures."""
    out = ["", " ", "  ", "   a", "\n", "\n\n", "\r\n", "\r\n\r\n", " \n ", "\t\tx", "a\u00a0b", "\u3000全角", "\u180e\u200b\ufeff",
           "a\x00b", "\x7f\x80".encode("latin-1").decode("latin-1"), "don't DON'T we'LL I'M it'S 'tis ''s 'ſ 'S 'sé",
           "1", "12", "123", "1234", "1234567890", "3.14e-10", "٣٤٥", "½²³", "Ⅷ", "一二三123", "x1y22z333", "1,000,000.00",
           "日本語のテキスト", "漢字かな交じり文123", "한국어 텍스트", "ภาษาไทย", "हिन्दी पाठ", "مرحبا بالعالم", "שלום עולם",
           "\u202eRTL\u202c", "🙂", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "👍🏽👍", "e\u0301", "é", "a\u0323\u0301", "a\u0301\u0323", "\u0301x",
           "Å\u212b\u0041\u030a", "\ufb01 ﬁ ﬆ", "가\u1100\u1161\u11a8", "が\u304b\u3099", "q\u0307\u0323", "\u0344\u0374\u037e",
           "ǅ ǆ Ǆ", "ß ẞ SS", "İı", "Ωμέγα", "\u0898\u0301a\u0323", "\U00011935\U00011930", "\u1abf\u0301",
           "\U00031350\U0002ebf0", "\U00010d4a\U00010d40", "\U00011de0\U00016ff4", "\u1c89\u1c8a", "a" * 100, "ab" * 60, "  " * 70 + "x",
           "=" * 90, "\n" * 40, "\r\n" * 20, "the" * 50, "漢" * 60, "x" * 23, "x" * 24, "x" * 25, "x" * 63, "x" * 64, "x" * 65,
           "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "<|endoftext", "<|endoftext|>>",
           "<<|endoftext|>", "<|im_start|>user\nkaro<|im_end|>\n", "<tool_call>\n{\"a\": 1}\n</tool_call>", "<pad> <pad>x x<pad>",
           "word", "a word here", "sword", "words", "word_", "word!", "(word)", "1word", "wordé", "é word", "\u200dword", "_word",
           "  left  ", "xleft", "\u00a0left", "x \t left\n", "right  x", "right\n\nx", "right", "leftright", "left right  both  x",
           " both both ", "caf\u00e9", "cafe\u0301", "a cafe\u0301b", "caféx", "CAFÉ", "Ġ Ċ ġ", "Ġthe", "\u0120", "Ã©",
           "if (x == 1) { return y[0]; }\n\treturn 0;\n", "def f(a, b=1):\n    return a**b  # x\n", "https://a.example/x?y=1&z=%20#k",
           "CamelCaseHTTPServer2Go", "snake_case_name", "a\u2028b\u2029c\x85d", "tab\there", "end ", "end  ", " \r", "\r", "a\r b",
           "!!! ... --- ***", "$100 €50 ¥", "“quoted” ‘single’ — dash…", "x'll y've z're", "'", "''", "' s", "\u2019s"]
    pools = [list("abcdefghij KLM"), list("  \n\t\r"), list("0123456789"), list(".,;:!?'\"-_()[]{}<>|=+*/\\"), list("äöüßéñ"),
             [chr(c) for c in range(0x4E00, 0x4E40)], [chr(c) for c in range(0x300, 0x330)], ["👩", "\u200d", "💻", "🏽", "\ufe0f"],
             [chr(c) for c in range(0x621, 0x64a)], ["<|endoftext|>", "<|im_end|>", "word", " left", "right ", "both", "<pad>"],
             ["'s", "'LL", "the", " ver", "tion"], ["\u3000", "\u00a0", "\u180e", "\u2003", "\x85", "\u200b"],
             [chr(c) for c in range(0x1100, 0x1113)] + [chr(c) for c in range(0x1161, 0x1176)] + ["\u11a8", "\u11ab"]]
    for _ in range(160):
        out.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 28))))
    raw = [s.encode("utf-8") for s in out]
    raw += [b"\xff", b"a\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x99", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\xf4\x90\x80\x80",
            b"ok\x80\x80ok", b"\xe2\x28\xa1", b"\xf0\x28\x8c\x28", b"caf\xe9", b"<|endoftext|>\xff<|im_end|>", b"\xef\xbb\xbfbom"]
    raw += [bytes(rng.randrange(256) for _ in range(rng.randint(1, 24))) for _ in range(40)]
    return raw


def trained(pre, rng, size, specials=(), added=(), alphabet=True):
    tokenizer = peer_pipelines.make(pre, models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    tokenizer.train_from_iterator(corpus(rng), trainer)
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return json.loads(tokenizer.to_str())


def bos_template(content, token_id):
    sequence = [{"SpecialToken": {"id": content, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": sequence, "pair": sequence + [{"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {content: {"id": content, "ids": [token_id], "tokens": [content]}}}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    return {"type": "Sequence", "processors": [byte_level, template]}


def without_some_merges(spec, every):
    """Words that are tokens but cannot be merged to: ignore_merges must find them all the same."""
    used = {part for merge in spec["model"]["merges"] for part in merge}
    keep = [m for i, m in enumerate(spec["model"]["merges"]) if i % every or m[0] + m[1] in used]
    spec["model"]["merges"] = keep
    return spec


def families(rng):
    end = AddedToken("<|endoftext|>", special=True, normalized=False)
    odd = [AddedToken("<|im_start|>", special=True, normalized=False), AddedToken("<|im_end|>", special=True, normalized=False),
           AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False),
           AddedToken("word", single_word=True, normalized=False), AddedToken("left", lstrip=True, normalized=False),
           AddedToken("right", rstrip=True, normalized=True), AddedToken("both", lstrip=True, rstrip=True, normalized=False),
           AddedToken("cafe\u0301", normalized=True), AddedToken("<pad>", special=True, normalized=True, single_word=True)]
    yield "gpt-2", trained("gpt-2", rng, 1400, added=[end])
    yield "smollm", trained("smollm", rng, 1400, specials=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    llama = without_some_merges(trained("llama-bpe", rng, 1400, added=[end, AddedToken("<|im_end|>", special=True, normalized=False)]), 7)
    llama["model"]["ignore_merges"] = True
    llama["post_processor"] = bos_template("<|endoftext|>", 1400)
    yield "llama-bpe", llama
    yield "qwen2", trained("qwen2", rng, 1400, added=[end, *odd])
    # Bytes that the vocabulary lacks, merges as strings, no merges for digits.
    gaps = trained("smollm", rng, 900, specials=["<unk>"], alphabet=False)
    gaps["model"]["merges"] = ["#version: 0.2"] + [" ".join(m) for m in gaps["model"]["merges"]]
    yield "gaps", gaps


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def character_level(rng, size, reserved, first_space, pre=None, bos=None, added=()):
    """A BPE over characters with byte fallback, its merges in SentencePiece's order."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer, tokenizer.decoder = peer_pipelines.sentencepiece(first_space)
    tokenizer.pre_tokenizer = pre
    trained_by = Tokenizer(models.BPE())  # words, so that the tokens are like those of real files
    trained_by.pre_tokenizer = pre_tokenizers.Metaspace()
    trained_by.train_from_iterator(corpus(rng), trainers.BpeTrainer(vocab_size=size, show_progress=False))
    learned = [t for t, _ in sorted(trained_by.get_vocab().items(), key=lambda item: item[1])]
    spaces = ["\u2581" * n for n in range(2, 9)]
    tokens = reserved + BYTES + sorted(set(learned) | {"\u2581"} | set(spaces), key=lambda t: (len(t) == 1, learned.index(t) if t in learned else 10**6))
    merges = peer_pipelines.scored(tokens, len(reserved) + 256)
    tokenizer.model = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in reserved])
    tokenizer.add_tokens(list(added))
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single=[bos, "$A"], pair=[bos, "$A", "$B"], special_tokens=[(bos, reserved.index(bos))])
    return json.loads(tokenizer.to_str())


def character_families(rng):
    """Gemma: spaces replaced, a Split that finds none, user-defined tokens. Llama 2: a space put before every text, no
    pre-tokenizer. Mistral: Metaspace before the first word only. Their sizes leave words to merge and bytes to fall back on."""
    yield "gemma", character_level(rng, 700, ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"], False,
                                   pre_tokenizers.Split(" ", "merged_with_previous"), "<bos>",
                                   [AddedToken("\n\n", normalized=False), AddedToken("\n\n\n", normalized=False), AddedToken("<table>", normalized=False)])
    yield "llama-2", character_level(rng, 700, ["<unk>", "<s>", "</s>"], True, None, "<s>")
    mistral = character_level(rng, 700, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], False, None, "<s>")
    mistral["normalizer"] = None
    mistral["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    mistral["decoder"]["decoders"].append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    yield "mistral", mistral
    # Characters without bytes to fall back on, unk by unk.
    bare = character_level(rng, 500, ["<unk>"], False)
    bare["model"].update(byte_fallback=False, fuse_unk=False)
    for byte in BYTES:
        bare["model"]["vocab"][byte.lower()] = bare["model"]["vocab"].pop(byte)
    yield "bare", bare


def metaspace(**more):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True, **more}


def character_variants():
    """Changes to tokenizer-llama-2.json and tokenizer-bare.json."""
    for scheme, cut in itertools.product(["always", "first", "never"], [True, False]):
        yield "llama-2", {"normalizer": None, "pre_tokenizer": metaspace(prepend_scheme=scheme, split=cut)}
        yield "llama-2", {"normalizer": None, **sequence({"type": "WhitespaceSplit"}, metaspace(prepend_scheme=scheme, split=cut))}
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
        yield "llama-2", {"normalizer": {"type": form}}
    for left, right in itertools.product([True, False], repeat=2):
        yield "llama-2", {"normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}
    yield "llama-2", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "\u2581"},
        {"type": "Prepend", "prepend": ">>"}, {"type": "Replace", "pattern": {"String": "ka"}, "content": "mi"}]}}
    yield "bare", {"pre_tokenizer": {"type": "Whitespace"}}
    yield "bare", {"pre_tokenizer": {"type": "WhitespaceSplit"}}
    yield "bare", {"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "e"}}
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        yield "bare", {"pre_tokenizer": {"type": "Punctuation", "behavior": behavior}}
    yield "bare", sequence({"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"}, metaspace())
    yield "bare", {"model": {"fuse_unk": True}}
    yield "bare", {"model": {"unk_token": None}}
    yield "bare", {"model": {"ignore_merges": True}, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    yield "llama-2", {"decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}}
    yield "llama-2", {"decoder": {"type": "Sequence", "decoders": [{"type": "Strip", "content": "\u2581", "start": 1, "stop": 0}, {"type": "ByteFallback"},
                                                                   {"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": "*"}, {"type": "Fuse"}]}}


def byte_level(**more):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False, **more}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps]}}


def variants():
    """Changes to tokenizer-gpt-2.json or, where they say so, tokenizer-gaps.json."""
    for behavior, invert in itertools.product(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"], [False, True]):
        yield "gpt-2", sequence(split(r"\s", behavior, invert), byte_level())
        yield "gpt-2", sequence(split("e", behavior, invert, "String"), byte_level())
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        yield "gpt-2", sequence(split(r"x*", behavior), byte_level())
        yield "gpt-2", sequence(split(r"(?=[a-e])", behavior, True), byte_level())
    yield "gpt-2", {"pre_tokenizer": byte_level()}
    yield "gpt-2", {"pre_tokenizer": byte_level(add_prefix_space=True, use_regex=True)}
    yield "gpt-2", {"pre_tokenizer": byte_level(add_prefix_space=True)}
    for individual in [False, True]:
        yield "gpt-2", sequence({"type": "Digits", "individual_digits": individual}, byte_level(add_prefix_space=True, use_regex=True))
    yield "gpt-2", sequence(split(peer_pipelines.LLAMA3), byte_level())
    yield "gpt-2", sequence(split(peer_pipelines.QWEN2, "Removed", True), byte_level())
    yield "gpt-2", sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), byte_level())
    yield "gpt-2", sequence(split(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"), byte_level())
    yield "gpt-2", sequence(split(r"\p{Han}+|\P{L}+"), byte_level())
    yield "gpt-2", sequence(split(r"^.|\d+$|(?<=a)b|(?<!a)c|(?>k|ka)r|\u0065|\x{72}+?|[\]\-x]++"), byte_level())
    yield "gpt-2", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}
    yield "gaps", {"model": {"unk_token": "<unk>"}}
    yield "gaps", {"model": {"unk_token": "<unk>", "fuse_unk": True}}


def peer_ids(spec, raw):
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    return [tokenizer.encode(text.decode("utf-8", "replace")).ids for text in raw]


def peer_decoded(spec, ids):
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    return [tokenizer.decode(i, skip_special_tokens=True) for i in ids]


def changed(spec, change):
    out = json.loads(json.dumps(spec))
    for key, value in change.items():
        out[key] = {**out[key], **value} if key == "model" else value
    return out


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def classes():
    """What Split removes is what its class holds."""
    steps = {name: pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed")
             for name in ["L", "M", "N", "P", "S", "Z", "Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Po", "So", "Sm", "Han"]}
    steps["s"] = pre_tokenizers.Split(Regex(r"\s"), "removed")
    steps["d"] = pre_tokenizers.Split(Regex(r"\d"), "removed")
    out = {}
    for name, step in steps.items():
        found = set()
        for i in range(0, len(ALL), 4096):
            chunk = "".join(map(chr, ALL[i:i + 4096]))
            kept = set("".join(piece for piece, _ in step.pre_tokenize_str(chunk)))
            found |= {ord(c) for c in chunk if c not in kept}
        out[name] = ranges(found)
    digits = pre_tokenizers.Digits(individual_digits=True)
    out["Digits"] = ranges({c for c in ALL if len(digits.pre_tokenize_str("a" + chr(c))) > 1})
    return out


def digest(lines):
    out = hashlib.sha256()
    for line in lines:
        out.update(line.encode())
        out.update(b"\0")
    return out.hexdigest()


NFC_PROBES = ["%s", "a%s\u0301\u0323\u0334", "a\u0323%s\u0327", "\u1100%s\u11a8", "%s\u3099", "\U00011935%s"]
EDGES = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]


def digests():
    nfc = normalizers.NFC()
    out = {"nfc": [digest(nfc.normalize_str(probe % chr(c)) for c in ALL if probe == "%s" or c < 0x20000)
                   for probe in NFC_PROBES]}
    for name in ["NFD", "NFKC", "NFKD", "Lowercase"]:
        form = getattr(normalizers, name)()
        out[name] = [digest(form.normalize_str(probe % chr(c)) for c in ALL if c < (0x30000 if probe == "%s" else 0x20000))
                     for probe in NFC_PROBES[:2]]  # from 0x30000 on nothing changes
    out["two_bytes"] = digest(bytes(b).decode("utf-8", "replace") for b in itertools.product(range(256), repeat=2))
    out["four_edges"] = digest(bytes(b).decode("utf-8", "replace") for b in itertools.product(EDGES, repeat=4))
    return out


def conversations():
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "  What is 2+2?\n"}
    answer, tool = {"role": "assistant", "content": "4"}, {"role": "tool", "content": "{\"x\": 1}"}
    empty = {"role": "user", "content": ""}
    return [[user], [system, user], [user, answer, user], [system, user, answer, user, answer], [user, system, user], [answer],
            [system], [empty], [user, tool, tool, answer, tool], [system, system, user], [tool, user]]


def chat(paths):
    import gguf
    from transformers import PreTrainedTokenizerFast
    templates = [gguf.GGUFReader(p).fields["tokenizer.chat_template"].contents() for p in paths]
    for text in list(templates):
        templates.append(text.replace("You are a helpful AI assistant named SmolLM, trained by Hugging Face", "Ask me.")
                         .replace("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "Ask me."))
        first = text.find("{% if loop.first")
        if first >= 0:
            templates.append(text.replace("\n", "\\n"))
            templates.append(text[:first] + text[text.find("{% endif %}") + len("{% endif %}"):])
    out = []
    for text in templates:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=text)
        rendered = [[tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=g) for g in (False, True)]
                    for c in conversations()]
        out.append({"template": text, "sha256": hashlib.sha256(text.encode()).hexdigest(), "rendered": rendered})
    return {"conversations": conversations(), "templates": out}


def write(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


def write_character_families(folder, raw):
    specs, few = {}, raw[::3]
    for name, spec in character_families(random.Random(13)):
        specs[name] = spec
        ids = peer_ids(spec, few)
        write(folder, f"tokenizer-{name}.json", spec)
        write(folder, f"ids-{name}.json", {"ids": ids, "decoded": peer_decoded(spec, ids)})
    out = []
    for base, change in character_variants():
        spec = changed(specs[base], change)
        ids = peer_ids(spec, raw[::29])
        out.append({"base": base, "change": change, "ids": ids, "decoded": peer_decoded(spec, ids)})
    write(folder, "character-variants.json", out)


def main():
    folder, model_paths = sys.argv[1], sys.argv[2:]
    os.makedirs(folder, exist_ok=True)
    raw = strings(random.Random(7))
    write(folder, "strings.json", [text.decode("latin-1") for text in raw])
    specs = {}
    for name, spec in families(random.Random(11)):
        specs[name] = spec
        ids = peer_ids(spec, raw)
        write(folder, f"tokenizer-{name}.json", spec)
        write(folder, f"ids-{name}.json", {"ids": ids, "decoded": peer_decoded(spec, ids)})
    write_character_families(folder, raw)
    few = raw[::7]
    write(folder, "variants.json", [{"base": base, "change": change, "ids": peer_ids(changed(specs[base], change), few)}
                                    for base, change in variants()])
    write(folder, "classes.json", classes())
    write(folder, "digests.json", digests())
    write(folder, "jinja.json", chat_golden.golden(os.path.dirname(os.path.abspath(__file__))))
    if model_paths:
        write(folder, "chat.json", chat(model_paths))


if __name__ == "__main__":
    main()
