"""peer_directories.py TOOL OUT: lets a real tool calibrate and save a tiny model, and records what it held.

TOOL is llmcompressor (0.14.0.1: directories ct_tensor, ct_head, ct_default) or modelopt (0.47.0: modelopt_fp8,
modelopt_kv_only, modelopt_affine). Each gets expected.json with the scales as the tool's own objects hold them, [layer, side,
values]. Called by scripts/test-scale-peers.sh in an environment with that tool; kvscale itself needs neither. Weights are written as
zeros, since only names, shapes and scales are compared: the directories stay small when compressed.
"""
import json
import os
import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM

tool, out = sys.argv[1:3]


def tiny_model():
    torch.manual_seed(20261130)
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=8, max_position_embeddings=64, tie_word_embeddings=True)
    base = tempfile.mkdtemp()  # LLM Compressor looks for the model's configuration on disk
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(base)
    return LlamaForCausalLM.from_pretrained(base, dtype=torch.bfloat16).eval()


def batches():
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(0, 64, (1, 16), generator=generator) for _ in range(4)]


def record(folder, scales):
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(scales, file)
        file.write("\n")


def write_llmcompressor():
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    data = torch.utils.data.DataLoader([{"input_ids": b[0], "attention_mask": torch.ones_like(b[0])} for b in batches()],
                                       batch_size=1)
    schemes = {"ct_tensor": {"strategy": "tensor", "observer": "static_minmax"},
               "ct_head": {"strategy": "attn_head", "observer": "static_minmax"}, "ct_default": {"strategy": "tensor"}}
    for name, scheme in schemes.items():
        model = tiny_model()
        scheme = dict(num_bits=8, type="float", dynamic=False, symmetric=True, **scheme)
        oneshot(model=model, dataset=data, processor=object(), recipe=QuantizationModifier(kv_cache_scheme=scheme),
                num_calibration_samples=4, max_seq_length=16, shuffle_calibration_samples=False)
        folder = os.path.join(out, name)
        model.save_pretrained(folder)
        record(folder, [[i, side, getattr(layer.self_attn, f"{side}_scale").flatten().float().tolist()]
                        for i, layer in enumerate(model.model.layers) for side in "kv"])


def write_modelopt():
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    weights = list(mtq.FP8_DEFAULT_CFG["quant_cfg"])
    nothing = [{"quantizer_name": "*", "enable": False}]
    scaled, affine = list(mtq.FP8_KV_CFG["quant_cfg"]), list(mtq.FP8_AFFINE_KV_CFG["quant_cfg"])
    for name, rules in {"modelopt_fp8": weights + scaled, "modelopt_kv_only": nothing + scaled,
                        "modelopt_affine": weights + affine}.items():
        model = mtq.quantize(tiny_model(), {"quant_cfg": rules, "algorithm": "max"}, lambda m: [m(b) for b in batches()])
        scales = [[i, side, [(getattr(layer.self_attn, f"{side}_bmm_quantizer").amax.float() / 448).item()]]
                  for i, layer in enumerate(model.model.layers) for side in "kv"]
        folder = os.path.join(out, name)
        export_hf_checkpoint(model, export_dir=folder)
        record(folder, scales)


def zero_weights(folder):
    """Keeps every scale; overwrites the bytes of all else by zeros."""
    import struct
    for name in os.listdir(folder):
        if not name.endswith(".safetensors"):
            continue
        path = os.path.join(folder, name)
        os.chmod(path, 0o644)
        with open(path, "r+b") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
            for tensor, entry in header.items():
                if tensor == "__metadata__" or tensor.endswith("_scale"):
                    continue
                begin, end = entry["data_offsets"]
                file.seek(8 + size + begin)
                file.write(bytes(end - begin))


os.makedirs(out, exist_ok=True)
{"llmcompressor": write_llmcompressor, "modelopt": write_modelopt}[tool]()
for directory in sorted(os.listdir(out)):
    zero_weights(os.path.join(out, directory))
