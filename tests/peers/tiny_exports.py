"""Tiny Llamas with scales that kvscale exports: what the loaders of engines are tried on."""
import json
import os
import subprocess
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

LAYERS = 2


def make_model(folder, kv_heads):
    torch.manual_seed(kv_heads)
    config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=16,
                         num_key_value_heads=kv_heads, head_dim=32, max_position_embeddings=64, tie_word_embeddings=True)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def make_scales(folder, model, kv_heads):
    """A compressed-tensors directory of nothing but scales, one per head, none of which BF16 holds exactly."""
    os.makedirs(folder)
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    scheme = {"num_bits": 8, "type": "float", "strategy": "attn_head", "symmetric": True, "dynamic": False,
              "observer": "static_minmax"}
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "dense", "config_groups": {},
                                     "kv_cache_scheme": scheme}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    generator = torch.Generator().manual_seed(100 + kv_heads)
    save_file({f"model.layers.{layer}.self_attn.{side}_scale": 0.01 + 0.2 * torch.rand(kv_heads, 1, 1, generator=generator)
               for layer in range(LAYERS) for side in "kv"}, os.path.join(folder, "model.safetensors"),
              metadata={"format": "pt"})


def kvscale_json(kvscale, *arguments):
    run = subprocess.run([kvscale, *arguments, "--json"], capture_output=True, text=True)
    if run.returncode not in (0, 10, 20):
        sys.exit(f"kvscale {' '.join(arguments)}: ended with {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


def export(kvscale, scratch, kv_heads, form, layout, exact, target):
    """The exported directory, and [layer, side, values] as written into it."""
    model, scales = (os.path.join(scratch, f"{name}{kv_heads}") for name in ("model", "scales"))
    if not os.path.exists(model):
        make_model(model, kv_heads)
        make_scales(scales, model, kv_heads)
    folder = os.path.join(scratch, f"{form}-{layout}-{kv_heads}{'-exact' if exact else ''}")
    kvscale_json(kvscale, "export", model, "--scales", scales, "--out", folder, "--form", form, "--layout", layout, "--for", target,
                 *(["--reduce", "max"] if layout == "fp8_tensor" else []), *(["--exact"] if exact else []))
    with open(os.path.join(folder, "kvscale_export.json")) as file:
        written = [[s["layer"], s["side"], s["used"]] for s in json.load(file)["scales"]]
    return folder, written


def predictions(kvscale, folder, target, size=1):
    run = kvscale_json(kvscale, "inspect", folder, "--for", target, "--tp", str(size))
    return {(layer["layer"], side): layer[side]["ranks"] for layer in run["engine"]["layers"] for side in "kv"}


def write_record(path, engine, version, cases):
    lines = ",\n".join(json.dumps(case) for case in cases)
    with open(path, "w") as file:
        file.write(f'{{"{engine}": "{version}", "cases": [\n{lines}\n]}}\n')
