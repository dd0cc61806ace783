"""compare_perplexity.py KVSCALE MODEL.gguf...: the perplexity of 4,096 tokens of real text, ours
against transformers.

The text is the GPL-3 of Debian's base-files, as ids by transformers' tokenizer. transformers scores
it with the weights of the same file, dequantized, in F32. Ours is the BF16 control of `kvscale
eval`. Perplexities may differ by 0.3 %. Ends with 1 when one differs by more. Needs torch,
transformers, gguf and accelerate.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

from compare_logits import load

TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")
TOKENS = 4096
ALLOWED = 0.003
ROWS = 256  # of logits at a time: a vocabulary of 262,144 in F32 is 1 MB a row


@torch.no_grad()
def peer_nll(path, ids):
    """Mean nats per predicted token."""
    model = load(path, torch.float32)
    hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
    total = 0.0
    for first in range(0, len(ids) - 1, ROWS):
        logits = model.lm_head(hidden[first:min(first + ROWS, len(ids) - 1)]).double()
        cap = getattr(model.config, "final_logit_softcapping", None)
        if cap:
            logits = cap * torch.tanh(logits / cap)
        wanted = torch.tensor(ids[first + 1:first + 1 + len(logits)])
        total += torch.nn.functional.cross_entropy(logits, wanted, reduction="sum").item()
    return total / (len(ids) - 1)


def our_nll(kvscale, path, ids):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.jsonl").write_text(json.dumps({"id": "text", "ids": ids}) + "\n")
        out = subprocess.run([kvscale, "eval", path, "--prompts", folder / "text.jsonl", "--arms",
                              "fp8_scale1", "--out", folder / "run", "--json"], check=True,
                             stdout=subprocess.PIPE).stdout
    control = json.loads(out)["arms"][0]
    if control["arm"] != "bf16" or control["tokens"] != len(ids) - 1:
        raise ValueError(f"expected {len(ids) - 1} tokens of bf16, found {control['tokens']} of "
                         f"{control['arm']}")
    return control["nll"]


def main():
    kvscale, models = sys.argv[1], [pathlib.Path(p).resolve() for p in sys.argv[2:]]
    held = True
    for path in models:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        ids = tokenizer(TEXT.read_text()).input_ids[:TOKENS]
        ours, peer = our_nll(kvscale, path, ids), peer_nll(path, ids)
        difference = math.exp(ours - peer) - 1
        held &= len(ids) == TOKENS and abs(difference) <= ALLOWED
        print(f"{path.name}: {len(ids)} tokens, perplexity {math.exp(ours):.4f}, "
              f"peer {math.exp(peer):.4f}, {100 * difference:+.3f} % (at most {100 * ALLOWED} %)",
              flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
