"""Collects the running text that the built-in model is trained on from a Debian system.

Usage: python3 corpus.py OUT.txt.xz

Sources are the texts that Debian packages install: licences, /usr/share/doc, manual pages, Perl's
POD and Python's docstrings. Paragraphs are taken once, non-English and non-ASCII ones are dropped,
and every kind of source has its own limit, so that the mixture does not depend on which package is
the biggest. The sources and their sizes are printed; OUT is one UTF-8 text, xz-compressed.
"""

import ast
import gzip
import hashlib
import lzma
import pathlib
import re
import sys

# Bytes of text taken at most per kind of source and per file.
LIMITS = {"licences": 400_000, "doc": 6_000_000, "man": 6_000_000, "pod": 4_000_000,
          "python": 2_500_000}
FILE_LIMIT = 60_000
COMMON_WORDS = re.compile(r"\b(the|of|and|to|is|in|for|a|this|that|be|with|or|if|by)\b")


def read_text(path):
    """The file's text, gunzipped when named .gz; invalid bytes become U+FFFD."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return data.decode("utf-8", "replace")


def strip_roff(text):
    """Plain words of a manual page: requests dropped, font changes and escapes resolved."""
    lines = []
    for line in text.split("\n"):
        if line.startswith((".\\\"", "'\\\"", ".de", ".ie", ".el", ".if", ".nr", ".ds", "..")):
            continue
        request = re.match(r"[.'](\w+)\s*(.*)", line)
        if request:
            name, rest = request.groups()
            if name in ("SH", "SS", "PP", "P", "TP", "IP", "LP", "sp", "Pp", "Sh", "It"):
                lines.append("")
            if name not in ("B", "I", "BR", "IR", "RB", "BI", "IB", "RI", "SH", "SS"):
                continue
            line = rest.replace('"', "")
        line = re.sub(r"\\f(\[.*?\]|\(..|.)", "", line)
        line = re.sub(r"\\\((\w\w|..)", "", line).replace("\\-", "-").replace("\\e", "\\")
        lines.append(re.sub(r"\\[&/,|^cp%]", "", line))
    return "\n".join(lines)


def strip_pod(text):
    """The POD parts of a Perl file with their markup codes resolved."""
    parts = re.findall(r"^=(?!cut)\w+.*?(?=^=cut|\Z)", text, re.M | re.S)
    body = re.sub(r"^=\w+ ?", "", "\n".join(parts), flags=re.M)
    return re.sub(r"[A-Z]<([^<>]*)>", r"\1", body)


def docstrings(text):
    """All docstrings of a Python file, one after the other."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text for text in found if text)


def is_wanted(paragraph):
    """Whether a paragraph is English prose or code in ASCII, not a table of symbols or hashes."""
    if len(paragraph) < 60 or not paragraph.isascii():
        return False
    words = paragraph.split()
    letters = sum(c.isalpha() or c == " " for c in paragraph)
    return letters > 0.7 * len(paragraph) and len(COMMON_WORDS.findall(paragraph)) * 12 > len(words)


def paragraphs(text, seen):
    """Wanted paragraphs of `text` not in `seen`; adds them to it."""
    for paragraph in re.split(r"\n\s*\n", text.replace("\t", "    ").replace("\r", "")):
        paragraph = "\n".join(line.rstrip() for line in paragraph.strip("\n").split("\n"))
        key = hashlib.sha1(re.sub(r"\W+", " ", paragraph).encode()).digest()[:8]
        if key in seen or not is_wanted(paragraph):
            continue
        seen.add(key)
        yield paragraph


def sources():
    """Yields (kind, path, reader) in a fixed order."""
    usr = pathlib.Path("/usr")
    for path in sorted((usr / "share/common-licenses").iterdir()):
        yield "licences", path, lambda text: text
    names = re.compile(r"(README|NEWS|TODO|FAQ|HOWTO|copyright|.*\.(txt|md|rst))(\..*)?$", re.I)
    for path in sorted((usr / "share/doc").rglob("*")):
        if names.match(path.name) and "hangelog" not in path.name:
            yield "doc", path, lambda text: text
    manuals = sorted((usr / "share/man").glob("man[1-8]/*.gz"))
    # By a hash of the name: sections and packages come mixed, whatever is installed beside them.
    manuals.sort(key=lambda path: hashlib.sha1(path.name.encode()).digest())
    for path in manuals:
        yield "man", path, strip_roff
    for folder in (usr / "share/perl", usr / "lib/x86_64-linux-gnu/perl"):
        for suffix in ("*.pod", "*.pm"):
            for path in sorted(folder.rglob(suffix)):
                yield "pod", path, strip_pod
    for path in sorted((usr / "lib/python3.11").rglob("*.py")):
        yield "python", path, docstrings


def collect():
    """Returns (list of documents, bytes taken per kind)."""
    seen, taken, documents = set(), dict.fromkeys(LIMITS, 0), []
    for kind, path, reader in sources():
        if taken[kind] >= LIMITS[kind] or not path.is_file() or path.is_symlink():
            continue
        text = "\n\n".join(paragraphs(reader(read_text(path)), seen))[:FILE_LIMIT]
        if len(text) < 300:
            continue
        documents.append(text.rstrip() + "\n")
        taken[kind] += len(text)
    return documents, taken


def main():
    documents, taken = collect()
    out = pathlib.Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    # U+0000 separates documents; no wanted paragraph holds it.
    out.write_bytes(lzma.compress("\0".join(documents).encode(), preset=6))
    print(len(documents), "documents,", taken, "bytes,", out.stat().st_size, "compressed")


if __name__ == "__main__":
    main()
