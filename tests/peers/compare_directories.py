"""compare_directories.py KVSCALE DIR...: does `kvscale inspect` find the scales that a tool held when it wrote DIR?

Each DIR has expected.json beside the checkpoint: [layer, side, values] as the tool's own objects held them
(tests/checkpoint/scales/peer_directories.py writes both). Numbers must be equal, none may be left over or unread. Ends with 1
when they are not. Needs nothing but Python.
"""
import json
import os
import subprocess
import sys


def read(kvscale, folder):
    run = subprocess.run([kvscale, "inspect", folder, "--json"], capture_output=True, text=True)
    if run.returncode not in (0, 10, 20):
        sys.exit(f"{folder}: kvscale inspect ended with {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


def differences(folder, found):
    with open(os.path.join(folder, "expected.json")) as file:
        expected = {(layer, side): values for layer, side, values in json.load(file)}
    stored = {(s["layer"], s["side"]): s["values"] for s in found["scales"] if s["side"] in "kv"}
    for key in sorted(expected.keys() | stored.keys()):
        if expected.get(key) != stored.get(key):
            yield f"layer {key[0]} {key[1]}: the tool held {expected.get(key)}, inspect found {stored.get(key)}"
    for unread in found["unread"]:
        yield f"unread: {unread}"


def main():
    kvscale, folders = sys.argv[1], sys.argv[2:]
    failed = False
    for folder in folders:
        found = read(kvscale, folder)
        wrong = list(differences(folder, found))
        failed = failed or bool(wrong)
        print(f"{os.path.basename(folder)}: {found['format']}, {found['summary']}, {found['health']}: "
              + ("; ".join(wrong) if wrong else "as the tool held it"))
    sys.exit(1 if failed or not folders else 0)


main()
