"""Writes the goldens of this folder's tests: python make_golden.py FOLDER

Needs gguf, numpy, safetensors, torch, transformers.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Where the F16 scales of a block lie, in bytes from its beginning.
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}


def random_scale(rng, i):
    if i == 0:
        return np.float16(0)
    if i == 1:
        return np.float16(-6e-8)  # the smallest subnormal
    return np.float16(rng.normal() * 10.0 ** rng.integers(-6, 4))


def write_blocks(out, rng):
    for kind, places in SCALES.items():
        values, size = gguf.GGML_QUANT_SIZES[kind]
        count = 64 if values == 32 else 12
        blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for i in range(count):
            for place in places:
                blocks[i, place : place + 2] = np.frombuffer(random_scale(rng, i).tobytes(), np.uint8)
        decoded = dequantize(blocks, kind).astype(np.float32)
        write_pair(out / f"{kind.name.lower()}.bin", count, blocks, decoded)
    halves = rng.integers(0, 1 << 16, 2048, dtype=np.uint16)
    halves = halves[(halves & 0x7C00) != 0x7C00]  # finite as F16
    raw = halves.view(np.uint8)
    write_pair(out / "f16.bin", len(halves), raw, dequantize(raw.view(np.float16), T.F16))
    write_pair(out / "bf16.bin", len(halves), raw, dequantize(raw, T.BF16))


def write_pair(path, count, blocks, decoded):
    path.write_bytes(struct.pack("<I", count) + blocks.tobytes() + decoded.astype("<f4").tobytes())


ROPES = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
     "mscale": 1.0, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1},
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096,
     "attention_factor": 1.25, "truncate": False},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16,
     "beta_fast": 4, "beta_slow": 2},
]


def write_ropes(out):
    cases = []
    for head_dim, theta in ((64, 1e5), (128, 1e6)):
        for rope in ROPES:
            config = LlamaConfig(hidden_size=head_dim * 2, num_attention_heads=2, head_dim=head_dim,
                                 max_position_embeddings=65536,
                                 rope_parameters={**rope, "rope_theta": theta})
            freqs, attention = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
            cases.append({"head_dim": head_dim, "rope_parameters": {**rope, "rope_theta": theta},
                          "attention_factor": attention, "inv_freq": freqs.tolist()})
    (out / "rope.json").write_text(json.dumps(cases) + "\n")


TINY = dict(vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256,
            rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=[2, 3], tie_word_embeddings=False)

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}


def tiny_weights(rng):
    hidden, inner, q, kv = 32, 48, 32, 16
    shapes = {"model.embed_tokens": (48, hidden), "lm_head": (48, hidden), "model.norm": (hidden,)}
    per_layer = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
                 "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
                 "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
                 "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,),
                 "post_attention_layernorm": (hidden,)}
    for layer in range(2):
        shapes.update({f"model.layers.{layer}.{name}": shape for name, shape in per_layer.items()})
    return {name + ".weight": torch.from_numpy(rng.normal(0, 0.2, shape).astype(np.float32)).bfloat16()
            for name, shape in shapes.items()}


def gguf_name(name):
    fixed = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
    name = name.removesuffix(".weight")
    if name in fixed:
        return fixed[name] + ".weight"
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def permuted(weight, heads):
    """Rows of one head: from two halves to pairs, as GGUF's converter for llama does it."""
    rows, columns = weight.shape
    return (weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2)
            .reshape(rows, columns))


def write_tiny_models(out, rng):
    folder = out / "tiny_hf"
    folder.mkdir(exist_ok=True)
    weights = tiny_weights(rng)
    LlamaConfig(**TINY, architectures=["LlamaForCausalLM"],
                rope_parameters={"rope_type": "default", "rope_theta": 5e5}).save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    writer = gguf.GGUFWriter(out / "tiny.gguf", "llama")
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(48)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(3)
    for name, weight in weights.items():
        array = weight.float().numpy()
        if "q_proj" in name:
            array = permuted(array, 4)
        if "k_proj" in name:
            array = permuted(array, 2)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20261130)
    write_blocks(out, rng)
    write_ropes(out)
    write_tiny_models(out, rng)


main()
