"""Writes the recorded logits that the tests of the forward pass are held against.

Usage: python3 make_golden.py OUT_DIR

Needs numpy, torch, tokenizers and transformers. OUT_DIR gets one JSON file per model: tiny.json
(models/tiny on prompts of its tasks and outside them), qwen2.json, llama3.json and one per entry of
FAMILIES (two layers with weights that a formula gives, see seeded_tensor; seeded_model.h repeats
it). Per prompt:

ids       what was fed
rows      some positions: the 32 largest logits with their ids, and log-sum-exp and mean of the row,
          from transformers in F32
peer_rms  root mean square of what transformers in BF16 gives for these logits minus the F32 ones;
          peer_lse_rms, peer_mean_rms likewise
greedy    (tiny only) the likeliest continuation, [id, logit minus the second largest] each
"""

import json
import pathlib
import sys

import numpy as np
import tokenizers
import torch
import transformers

TINY = pathlib.Path(__file__).resolve().parents[2] / "models/tiny"
TOP = 32
GREEDY_TOKENS = 24

SIZES = {"num_hidden_layers": 2, "hidden_size": 320, "intermediate_size": 384, "vocab_size": 512,
         "max_position_embeddings": 1024, "bos_token_id": 1, "eos_token_id": 2}
# Grouped-query attention by 7, biases on Q, K and V, the embedding as output head.
QWEN2 = SIZES | {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_attention_heads": 14,
    "num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    "tie_word_embeddings": True}
# Frequencies stretched for pairs that turn less than once in 128 tokens, kept for those that turn
# four times or more, in between a mixture: all three kinds exist at head_dim 128.
LLAMA3 = SIZES | {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "attention_bias": False,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 128}}

# The other architectures, small: every part that sets them apart is there and has a say.
SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 192, "vocab_size": 256,
         "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
         "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False}
GEMMA = SMALL | {"tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
                 "layer_types": ["sliding_attention", "full_attention"]}
FAMILIES = {
    "mistral": SMALL | {"architectures": ["MistralForCausalLM"], "model_type": "mistral",
                        "head_dim": 32, "sliding_window": 40},
    "mixtral": SMALL | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                        "head_dim": 32, "sliding_window": None, "num_local_experts": 4,
                        "num_experts_per_tok": 2, "rope_theta": 1e6,
                        "intermediate_size": 96},
    "qwen3": SMALL | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
                      "head_dim": 64, "rope_theta": 1e6},
    "qwen3_moe": SMALL | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                          "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 3,
                          "moe_intermediate_size": 64, "norm_topk_prob": True},
    "phi3": SMALL | {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3",
                     "sliding_window": 40},
    "gemma2": GEMMA | {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
                       "head_dim": 64, "sliding_window": 40, "query_pre_attn_scalar": 100,
                       "attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0},
    "gemma3_text": GEMMA | {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
                            "head_dim": 256, "num_key_value_heads": 1, "sliding_window": 40,
                            "query_pre_attn_scalar": 256, "rope_theta": 1e6,
                            "rope_local_base_freq": 10000.0},
}

# Latents (MLA): YaRN with both mscales and one dense layer, as V2-Lite; a latent for the queries too
# and experts chosen by groups, as V2.
DEEPSEEK = SMALL | {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "kv_lora_rank": 128,
    "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 20, "n_routed_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 64, "num_key_value_heads": 4}
FAMILIES |= {
    "deepseek_v2_lite": DEEPSEEK | {
        "num_hidden_layers": 3, "q_lora_rank": None, "first_k_dense_replace": 1,
        "n_shared_experts": 2, "routed_scaling_factor": 1.0, "topk_method": "greedy",
        "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32, "beta_slow": 1,
                         "original_max_position_embeddings": 64, "mscale": 0.707,
                         "mscale_all_dim": 0.9}},
    "deepseek_v2": DEEPSEEK | {
        "q_lora_rank": 48, "first_k_dense_replace": 0, "n_shared_experts": 1,
        "routed_scaling_factor": 1.5, "topk_method": "group_limited_greedy", "n_group": 4,
        "topk_group": 2},
}

TINY_TEXTS = {
    "prose": "The package manager reads the list of files before it unpacks anything, so that a file "
             "which two packages want to own is found early. If the check fails, nothing has been "
             "changed yet and the user may decide what to do. This is also why the order of the "
             "steps is documented in such detail: scripts may rely on it.\n",
    "code": "for (i = 0; i < n; i++) {\n    if (table[i] == NULL)\n        continue;\n"
            "    total += table[i]->size;\n}\nreturn total;\n",
    "bytes": "Größe 12 µm, 東京の天気は晴れ、🙂 — naïve café\n",
    "span": "You can list the installed files at any time.\nPassage dorina: kelu mato rebi dafo\n"
            "The format of this file is described in the manual page.\nPassage vufelo: 40718265309\n"
            "Options given later override the earlier ones.\n\nFrom the text above:\n"
            "Passage dorina:",
    "chat": "<|im_start|>user\nList of keys and their values:\nbazopi: wejisoda\n"
            "gumora: tikelune\nsivuha: pomazeri\n\nFrom the list above:\ngumora:<|im_end|>\n"
            "<|im_start|>assistant\n",
    "one": "A",
}
SYLLABLES = [c + v for c in "bdfghjklmnprstvwz" for v in "aeiou"]


def recall_text(lines):
    """A kv_recall document that asks for a key in its first third."""
    random = np.random.default_rng(3)
    word = lambda n: "".join(random.choice(SYLLABLES) for _ in range(n))
    pairs = [(word(3), word(4)) for _ in range(lines)]
    listed = "".join(f"{key}: {value}\n" for key, value in pairs)
    return (f"List of keys and their values:\n{listed}\nFrom the list above:\n"
            f"{pairs[lines // 3][0]}:")


def seeded_tensor(name, shape):
    """F32 values that BF16 holds: SplitMix64, started by FNV-1a of the name, gives one number per
    value; the sum of its four 16-bit parts is nearly normal with deviation 37,837."""
    state = 0xcbf29ce484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001b3 % 2**64
    with np.errstate(over="ignore"):
        count = np.arange(1, np.prod(shape) + 1, dtype=np.uint64)
        z = np.uint64(state) + count * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    total = sum((z >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(4)).astype(np.int64)
    values = (total - 131070) / 37837.0
    if "norm" in name:
        values = 1.0 + 0.25 * values
    elif "embed" in name:  # small, so that the layers' output is not a trifle beside the token's own
        values = values / 8.0
    elif len(shape) == 2:
        values = values / np.sqrt(float(shape[1]))
    tensor = torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16)
    return tensor.reshape(shape).float()


def parts_of(name, shape, config):
    """The tensors, as kvscale names them, that transformers keeps in this one, one below the other;
    None when it is one."""
    head = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    rows = {"q_proj": config["num_attention_heads"] * head,
            "k_proj": config["num_key_value_heads"] * head,
            "v_proj": config["num_key_value_heads"] * head,
            "gate_proj": config["intermediate_size"], "up_proj": config["intermediate_size"]}
    if "kv_lora_rank" in config and ".experts." not in name:
        return None
    for fused, kinds in (("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                         ("gate_up_proj", ("gate_proj", "up_proj"))):
        if name.endswith(f".{fused}.weight"):
            return [(name.replace(fused, kind), (rows[kind], shape[1])) for kind in kinds]
    for stacked, kinds in (("gate_up_proj", ("gate_proj", "up_proj")),
                           ("down_proj", ("down_proj",))):
        if name.endswith(f".experts.{stacked}"):
            folder = name[:-len(stacked)]
            return [(f"{folder}{expert}.{kind}.weight", (shape[1] // len(kinds), shape[2]))
                    for expert in range(shape[0]) for kind in kinds]
    return None


def weights_of(name, shape, config):
    """A parameter of transformers, and the model's tensors in it by name."""
    parts = parts_of(name, shape, config) or [(name, shape)]
    tensors = {part: seeded_tensor(part, part_shape) for part, part_shape in parts}
    return torch.cat(list(tensors.values())).reshape(shape), tensors


def checksum(model):
    """FNV-1a over the BF16 bits of the first 64 values of every tensor, by ascending name."""
    hash_, state = 0xcbf29ce484222325, model.seeded
    for name in sorted(state):
        bits = state[name].reshape(-1)[:64].to(torch.bfloat16).view(torch.int16).numpy()
        for byte in bits.tobytes():
            hash_ = (hash_ ^ byte) * 0x100000001b3 % 2**64
    return f"{hash_:016x}"


def seeded_model(config):
    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    model = transformers.AutoModelForCausalLM.from_config(kind.from_dict(config),
                                                          dtype=torch.float32)
    found = model.model.rotary_emb.rope_type
    if isinstance(found, dict):
        found = found["full_attention"]
    expected = config.get("rope_scaling", {"rope_type": "default"})["rope_type"]
    if found != expected:
        raise ValueError(f"rope_type: expected {expected}, found {found}")
    model.seeded = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values, tensors = weights_of(name, tuple(parameter.shape), config)
            parameter.copy_(values)
            model.seeded |= tensors
    return model.eval()


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids])).logits[0].float()


def chosen_positions(count, last=10, between=16):
    """The first two, some of the last and some between them."""
    evenly = np.linspace(0, count - 1, between + 2).astype(int)
    return sorted({*range(min(2, count)), *range(max(0, count - last), count), *evenly.tolist()})


def rms(x):
    return float(f"{x.double().square().mean().sqrt().item():.5g}")


def record_prompt(exact, rounded, ids, positions=None, top_count=TOP):
    """One prompt's entry; exact and rounded are the model in F32 and in BF16."""
    positions = positions or chosen_positions(len(ids))
    reference, peer = (logits_of(model, ids)[positions] for model in (exact, rounded))
    top = reference.topk(top_count)
    summary = lambda x: (x.double().logsumexp(-1), x.double().mean(-1))
    (lse, mean), (peer_lse, peer_mean) = summary(reference), summary(peer)
    rows = [{"position": position, "ids": top.indices[i].tolist(),
             "logits": [round(x, 5) for x in top.values[i].tolist()],
             "lse": round(lse[i].item(), 6), "mean": round(mean[i].item(), 6)}
            for i, position in enumerate(positions)]
    return {"ids": ids, "peer_rms": rms(peer.gather(1, top.indices) - top.values),
            "peer_lse_rms": rms(peer_lse - lse), "peer_mean_rms": rms(peer_mean - mean),
            "rows": rows}


def greedy(model, ids):
    out, ids = [], list(ids)
    for _ in range(GREEDY_TOKENS):
        best = logits_of(model, ids)[-1].topk(2)
        out.append([int(best.indices[0]), round((best.values[0] - best.values[1]).item(), 4)])
        ids.append(out[-1][0])
    return out


def write(path, document):
    """JSON with one row of logits per line."""
    text = json.dumps(document, separators=(",", ":")).replace('{"position"', '\n{"position"')
    path.write_text(text.replace('{"ids"', '\n{"ids"') + "\n")


def record_tiny(out):
    tokenizer = tokenizers.Tokenizer.from_file(str(TINY / "tokenizer.json"))
    load = lambda dtype: transformers.AutoModelForCausalLM.from_pretrained(TINY, dtype=dtype).eval()
    exact, rounded = load(torch.float32), load(torch.bfloat16)
    prompts = {}
    for name, text in (TINY_TEXTS | {"recall": recall_text(70)}).items():
        ids = tokenizer.encode(text).ids
        prompts[name] = record_prompt(exact, rounded, ids) | {"greedy": greedy(exact, ids)}
    write(out / "tiny.json", {"prompts": prompts})


def record_seeded(out, name, config):
    random = np.random.default_rng(11)
    exact = seeded_model(config)
    rounded = seeded_model(config).to(torch.bfloat16)
    prompts = {f"{count} tokens": record_prompt(
        exact, rounded, random.integers(config["vocab_size"], size=count).tolist())
        for count in (3, 64, 400)}
    write(out / f"{name}.json", {"checksum": checksum(exact), "prompts": prompts})


def record_family(out, name, config):
    random = np.random.default_rng(17)
    exact, rounded = seeded_model(config), seeded_model(config).to(torch.bfloat16)
    prompts = {}
    for count in (5, 150):  # the longer one is several windows long
        ids = random.integers(config["vocab_size"], size=count).tolist()
        # Rounding sends some tokens of a mixture to other experts, few with much error: more rows.
        between, top = (120, 6) if "num_experts_per_tok" in config else (12, 12)
        prompts[f"{count} tokens"] = record_prompt(exact, rounded, ids,
                                                   chosen_positions(count, 4, between), top)
    write(out / f"{name}.json", {"checksum": checksum(exact), "prompts": prompts})


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # sums in one order
    record_tiny(out)
    record_seeded(out, "qwen2", QWEN2)
    record_seeded(out, "llama3", LLAMA3)
    for name, config in FAMILIES.items():
        record_family(out, name, config)


if __name__ == "__main__":
    main()
