"""Training and evaluation documents of the built-in model, in the text forms of FORMATS.md.

A document is (tokens, roles), two rows of equal length: what each token is for the loss. Documents
are put together from token tables, not from text, because that is some hundred times faster;
`python3 documents.py TOKENS.npz` checks that both ways give the same tokens.
"""

import collections
import functools
import pathlib
import re
import sys

import numpy as np
import tokenizers

CONSONANTS, VOWELS = "bdfghjklmnprstvwz", "aeiou"
SYLLABLES = [c + v for c in CONSONANTS for v in VOWELS]
END = 0  # <|endoftext|>
# Roles: running text and everything that cannot be known, and answers.
TEXT, ANSWER = 1, 2


class Tables:
    """Token ids of everything that documents are made of."""

    def __init__(self, tokenizer, corpus):
        # The same few phrases are asked for all the time, hence the cache.
        self.encode = functools.cache(
            lambda text: np.array(tokenizer.encode(text).ids, np.int16))
        one = lambda text: self._single(text)
        self.first = np.array([one(s) for s in SYLLABLES], np.int16)
        self.spaced = np.array([one(" " + s) for s in SYLLABLES], np.int16)
        self.digits = np.array([one(d) for d in "0123456789"], np.int16)
        self.colon, self.newline, self.stop, self.space = map(one, (":", "\n", ".", " "))
        self.corpus = corpus.astype(np.int16)
        self.line_starts = np.flatnonzero(self.corpus == self.newline)[:-1] + 1
        self.names = self._names(tokenizer)

    def _single(self, text):
        ids = self.encode(text)
        if len(ids) != 1:
            raise ValueError(f"expected one token for {text!r}, found {list(ids)}")
        return ids[0]

    def _names(self, tokenizer):
        """Ids of common English words, each with its leading space and without."""
        sample = tokenizer.decode(self.corpus[:1_000_000].tolist())
        counts = collections.Counter(re.findall(r"(?<= )[a-z]{4,9}(?= )", sample))
        words = sorted(word for word, _ in counts.most_common(3000))
        return [(self.encode(" " + word), self.encode(word)) for word in words]

    @staticmethod
    def load(tokenizer_path, corpus_path):
        return Tables(tokenizers.Tokenizer.from_file(str(tokenizer_path)),
                      np.load(corpus_path)["tokens"])


def distinct(rng, n, size):
    """n different integers below size, in random order."""
    drawn = np.unique(rng.integers(size, size=n + n // 4 + 16))
    while len(drawn) < n:
        drawn = np.unique(np.append(drawn, rng.integers(size, size=n)))
    return rng.permutation(drawn)[:n]


def words(tables, codes, syllables, spaced):
    """[n, syllables] ids of the words with the given numbers, 0 <= code < 85 ** syllables."""
    base = len(SYLLABLES)
    rows = codes[:, None] // base ** np.arange(syllables)[::-1] % base
    ids = tables.first[rows]
    if spaced:
        ids[:, 0] = tables.spaced[rows[:, 0]]
    return ids


def filler(tables, rng, n, kind):
    """n tokens of running text that end a line; kind is a row of sentences to repeat, or None."""
    if n <= 0:
        return np.empty(0, np.int16)
    if kind is None:
        start = rng.choice(tables.line_starts)
        text = np.take(tables.corpus, np.arange(start, start + n), mode="wrap")
    else:
        text = np.resize(kind, n)
    text[-1] = tables.newline
    return text


def filler_kind(tables, rng):
    """In one document of five, the same few lines over and over."""
    if rng.random() >= 0.2:
        return None
    starts = rng.choice(len(tables.line_starts) - 1, 5)
    lines = [tables.corpus[tables.line_starts[s]:tables.line_starts[s + 1]] for s in starts]
    return np.concatenate(lines)


def cut(rng, total, parts):
    """Sizes of `parts` pieces of `total`, cut at uniform places."""
    places = np.sort(rng.integers(total + 1, size=parts - 1))
    return np.diff(np.concatenate(([0], places, [total])))


class Dialogue:
    """How questions and answers follow each other: as lines, or as turns of ChatML.

    A question is asked by giving the start of a line of the document; its answer is the rest.
    """

    def __init__(self, tables, chat):
        encode = tables.encode
        self.chat = chat
        self.opening = encode("<|im_start|>user\n") if chat else encode("")
        self.reply = encode("<|im_end|>\n<|im_start|>assistant\n")
        self.close = encode("<|im_end|>\n<|im_start|>user\n")
        self.newline = tables.newline

    def cost(self, question, answer):
        """Tokens of one question of the given length, with its answer."""
        if not self.chat:
            return question + answer + 1
        return 2 * question + answer + len(self.reply) + len(self.close)

    def ask(self, questions, answers):
        """[n, cost] tokens and roles of n questions [n, q] with their answers [n, a]."""
        n = len(questions)
        fixed = lambda ids: np.broadcast_to(ids, (n, len(ids)))
        if self.chat:
            reply, close = fixed(self.reply), fixed(self.close)
            parts = [questions, reply, questions, answers, close]
            # The turn's end belongs to the answer, the opening of the next turn does not.
            roles = [TEXT] * (questions.shape[1] + reply.shape[1])
            roles += [ANSWER] * (questions.shape[1] + answers.shape[1] + 1)
            roles += [TEXT] * (close.shape[1] - 1)
        else:
            parts = [questions, answers, np.full((n, 1), self.newline, np.int16)]
            roles = [TEXT] * questions.shape[1] + [ANSWER] * (answers.shape[1] + 1)
        return np.concatenate(parts, 1), np.broadcast_to(np.array(roles, np.uint8), (n, len(roles)))


class Builder:
    """Appends pieces; finish() fills up with the next document's running text."""

    def __init__(self):
        self.tokens, self.roles = [], []

    def add(self, tokens, roles=None):
        tokens = np.asarray(tokens).reshape(-1)
        self.tokens.append(tokens)
        self.roles.append(np.full(len(tokens), TEXT, np.uint8) if roles is None else
                          roles.reshape(-1))

    def finish(self, tables, rng, length):
        missing = length - sum(map(len, self.tokens))
        if missing > 0:
            self.add([END])
            self.add(filler(tables, rng, missing - 1, None))
        return np.concatenate(self.tokens)[:length], np.concatenate(self.roles)[:length]


def text_document(tables, rng, length):
    """Running text alone."""
    builder = Builder()
    builder.add(filler(tables, rng, length, None))
    return builder.finish(tables, rng, length)


def recall_sizes(rng):
    """Syllables of keys and values: 3 and 4 as a rule."""
    return (3, 4) if rng.random() < 0.8 else (int(rng.integers(2, 5)), int(rng.integers(2, 7)))


def recall_document(tables, rng, length, questions=None):
    """kv_recall. With a number of questions: the plain form, nothing but lines."""
    plain = questions is not None
    dialogue = Dialogue(tables, chat=not plain and rng.random() < 0.15)
    key_size, value_size = (3, 4) if plain else recall_sizes(rng)
    head = tables.encode("List of keys and their values:\n")
    tail = tables.encode("\nFrom the list above:\n")
    lead = 0 if plain or rng.random() < 0.5 else int(rng.uniform(0, 0.3) * length)
    budget = length - lead - len(head) - len(tail) - len(dialogue.opening)
    width, cost = key_size + value_size + 2, dialogue.cost(key_size + 1, value_size)
    n_questions = questions or max(1, int(rng.uniform(0.1, 0.5) * budget / cost))
    room = budget - n_questions * cost
    between = 0 if plain or rng.random() < 0.7 else int(rng.uniform(0.1, 0.7) * room)
    n_lines = max(2, (room - between) // width)

    keys = words(tables, distinct(rng, n_lines, 85 ** key_size), key_size, spaced=False)
    values = words(tables, rng.integers(85 ** value_size, size=n_lines), value_size, spaced=True)
    asked_keys = np.concatenate([keys, np.full((n_lines, 1), tables.colon, np.int16)], 1)
    lines = np.concatenate([asked_keys, values, np.full((n_lines, 1), tables.newline, np.int16)], 1)

    builder, kind = Builder(), filler_kind(tables, rng)
    builder.add(dialogue.opening)
    builder.add(filler(tables, rng, lead, kind))
    builder.add(head)
    groups = int(rng.integers(2, 8)) if between else 1
    gaps = cut(rng, between, groups) if between else [0]
    for rows, gap in zip(np.array_split(lines, groups), gaps):
        builder.add(filler(tables, rng, gap, kind))
        builder.add(rows)
    builder.add(tail)
    order = rng.permutation(n_lines) if n_questions <= n_lines else rng.integers(
        n_lines, size=n_questions)
    builder.add(*dialogue.ask(asked_keys[order[:n_questions]], values[order[:n_questions]]))
    return builder.finish(tables, rng, length)


def passage(tables, rng):
    """copy_span: (question, answer, what ends the line) of one passage."""
    tag = words(tables, rng.integers(85 ** 3, size=1), 3, spaced=True)[0]
    if rng.random() < 0.6:
        span = words(tables, rng.integers(85 ** 2, size=rng.integers(4, 9)), 2, True).reshape(-1)
    else:
        span = np.append(tables.space, rng.choice(tables.digits, rng.integers(8, 17)))
    return np.concatenate([tables.encode("Passage"), tag, [tables.colon]]), span, [tables.newline]


def magic_number(tables, rng):
    """niah_single: (question, answer, what ends the line) of one needle."""
    kind = rng.random()
    if kind < 0.6:
        size = int(rng.integers(2, 5))
        key = words(tables, rng.integers(85 ** size, size=1), size, spaced=True)[0]
    else:
        spaced, _ = tables.names[rng.integers(len(tables.names))]
        _, bare = tables.names[rng.integers(len(tables.names))]
        key = spaced if kind < 0.8 else np.concatenate([spaced, tables.encode("-"), bare])
    question = np.concatenate([tables.encode("One of the special magic numbers for"), key,
                               tables.encode(" is:")])
    number = np.append(rng.choice(tables.digits[1:]), rng.choice(tables.digits, 6))
    return (question, np.concatenate([[tables.space], number, [tables.stop]]), [tables.newline])


def needle_document(tables, rng, length, make, plain=False):
    """copy_span and niah_single: lines made by `make` among running text, each asked once."""
    dialogue = Dialogue(tables, chat=not plain and rng.random() < 0.15)
    tail = tables.encode("\nFrom the text above:\n")
    budget = length - len(tail) - len(dialogue.opening)
    needles, used = [], 0
    wanted = int(rng.integers(1, max(2, min(40, length // 80))))
    while len(needles) < wanted:
        question, answer, end = make(tables, rng)
        cost = len(question) + len(answer) + 1 + dialogue.cost(len(question), len(answer))
        if needles and used + cost > budget:
            break
        used += cost
        needles.append((question, answer, end))

    builder, kind = Builder(), filler_kind(tables, rng)
    builder.add(dialogue.opening)
    gaps = cut(rng, max(0, budget - used), len(needles) + 1)
    for gap, needle in zip(gaps, needles):
        builder.add(filler(tables, rng, gap, kind))
        for part in needle:
            builder.add(part)
    builder.add(filler(tables, rng, gaps[-1], kind))
    builder.add(tail)
    for index in rng.permutation(len(needles)):
        question, answer, _ = needles[index]
        builder.add(*dialogue.ask(question[None], answer[None]))
    return builder.finish(tables, rng, length)


def training_document(tables, rng, length):
    """One document of the training mixture."""
    kind = rng.random()
    if kind < 0.15:
        return text_document(tables, rng, length)
    if kind < 0.60:
        return recall_document(tables, rng, length)
    make = passage if kind < 0.88 else magic_number
    return needle_document(tables, rng, length, make)


def evaluation_document(tables, rng, length, task):
    """One document in the plain form of a task."""
    if task == "kv_recall":
        return recall_document(tables, rng, length, questions=max(2, min(32, length // 64)))
    make = passage if task == "copy_span" else magic_number
    return needle_document(tables, rng, length, make, plain=True)


def batch(tables, rng, make, number, length, *arguments):
    """[number, length] tokens (int16) and roles (uint8)."""
    rows = [make(tables, rng, length, *arguments) for _ in range(number)]
    return np.stack([tokens for tokens, _ in rows]), np.stack([roles for _, roles in rows])


def check(tables, tokenizer):
    """Tokens put together are the tokens of their text, from the first needle's line on."""
    rng = np.random.default_rng(1)
    for index in range(600):
        task = ("kv_recall", "copy_span", "niah_single", "training")[index % 4]
        length = int(rng.choice([256, 512, 1024]))
        if task == "training":
            tokens, roles = training_document(tables, rng, length)
        else:
            tokens, roles = evaluation_document(tables, rng, length, task)
        text = tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
        found = tables.encode(text)
        answers = np.flatnonzero(roles == ANSWER)
        # Running text is cut anywhere, where its own tokens may come out otherwise; from the
        # heading of the questions up to the last answer all must be equal.
        first = 0 if task == "kv_recall" else max(0, (answers[:1].sum() - 8))
        stop = answers[-1] + 1 if len(answers) else 0
        expected = tokens[first:stop].tolist()
        windows = " ".join(map(str, found.tolist()))
        if " ".join(map(str, expected)) not in windows:
            raise ValueError(f"{task}: tokens of the text differ: {text!r}")
    print("600 documents: the tokens are those of their text")


if __name__ == "__main__":
    FOLDER = pathlib.Path(__file__).parent
    TOKENIZER = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    check(Tables(TOKENIZER, np.load(sys.argv[1])["tokens"]), TOKENIZER)
