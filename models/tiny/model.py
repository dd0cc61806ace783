"""The built-in model: the Llama architecture in plain PyTorch, with the names of its checkpoints.

Written for training and for checking what was trained; every parameter has the name that a Llama
checkpoint of Hugging Face gives it, so that state_dict() is the file's content.
"""

import json

import numpy as np
import torch
from torch import nn
from torch.nn import functional

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "use_cache": True,
}
GENERATION = {"bos_token_id": 0, "eos_token_id": [0, 2], "pad_token_id": 0, "do_sample": False}


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, cos, sin):
    """RoPE over halves: x [batch, heads, tokens, head_dim], cos and sin [tokens, head_dim / 2]."""
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def round_e4m3(x, scale):
    """x as an E4M3 cache with this scale gives it back: saturated at 448, rounded to nearest."""
    codes = (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (codes.float() * scale).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads, self.dim = (
            config["num_attention_heads"], config["num_key_value_heads"], dim)
        self.q_proj = nn.Linear(width, self.heads * dim, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(self.heads * dim, width, bias=False)
        self.cache_scale = None  # a number: K and V pass an E4M3 cache with this scale
        self.observe = None  # called with K and V as a cache would store them

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        split = lambda y, heads: y.view(batch, tokens, heads, self.dim).transpose(1, 2)
        q = rotate(split(self.q_proj(x), self.heads), cos, sin)
        k = rotate(split(self.k_proj(x), self.kv_heads), cos, sin)
        v = split(self.v_proj(x), self.kv_heads)
        if self.observe:
            self.observe(k, v)
        if self.cache_scale:
            k, v = round_e4m3(k, self.cache_scale), round_e4m3(v, self.cache_scale)
        # Written out: not every fused kernel of PyTorch takes fewer KV heads than query heads.
        k, v = (y.repeat_interleave(self.heads // self.kv_heads, 1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, -1))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RMSNorm(width, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.mlp = MLP(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Body(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        pairs = torch.arange(0, config["head_dim"], 2, dtype=torch.float64) / config["head_dim"]
        angles = torch.outer(torch.arange(config["max_position_embeddings"], dtype=torch.float64),
                             config["rope_theta"] ** -pairs)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self._initialize()

    def _initialize(self):
        # Branches that add to the residual start smaller, so that its size does not grow with depth.
        branch = self.config["initializer_range"] / (2 * self.config["num_hidden_layers"]) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_branch = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter,
                                std=branch if is_branch else self.config["initializer_range"])

    def forward(self, tokens):
        """Logits [batch, tokens, vocab_size] of int64 tokens [batch, tokens]."""
        x = self.model.embed_tokens(tokens)
        cos, sin = self.cos[:tokens.shape[1]], self.sin[:tokens.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.model.norm(x))


def write_safetensors(path, tensors):
    """Writes BF16 tensors by name: 8 bytes of header length, a JSON header, the data."""
    header, offset, parts = {"__metadata__": {"format": "pt"}}, 0, []
    for name, tensor in tensors.items():
        data = tensor.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
        parts.append(data.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data starts at a multiple of 8
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def read_safetensors(path):
    """The BF16 tensors of a file written by write_safetensors, by name."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        raw = np.frombuffer(data, np.int16, (last - first) // 2, start + first).copy()
        tensors[name] = torch.from_numpy(raw).view(torch.bfloat16).view(entry["shape"])
    return tensors


def save(folder, model):
    """config.json, generation_config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION, indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", model.state_dict())
