"""sglang_loader.py KVSCALE OUT: what SGLang's own loader makes of kvscale's exports, on a CPU.

Tiny Llamas of 8 and of 2 KV heads are exported in the forms that SGLang reads, and per head, which it does not. SGLang builds the model and
loads the directory; of the JSON its scale reader returns what the model would take. What its attention layers hold must be
what `kvscale inspect --for sglang` says. OUT records it for the test suite. Ends with 1 when they differ. Runs in an
environment with sglang; no kernel of it runs.
"""
import os
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", DO_NOT_TRACK="1")

import sglang
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import init_distributed_environment, initialize_model_parallel, model_parallel_is_initialized
from sglang.srt.model_loader.loader import get_model_loader
from sglang.srt.model_loader.weight_utils import kv_cache_scales_loader
from sglang.srt.runtime_context import get_parallel
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from tiny_exports import LAYERS, export, predictions, write_record

# form, layout, exact, the target it is exported for
WRITTEN = [("compressed-tensors", "fp8_tensor", False, "sglang"), ("compressed-tensors", "fp8_head", False, "vllm"),
           ("modelopt", "fp8_tensor", False, "sglang"), ("modelopt", "fp8_tensor", True, "sglang"),
           ("sglang-json", "fp8_tensor", False, "sglang")]
WIDTHS = {f"{kind}_size": 1 for kind in ("tp", "pp", "attn_dp", "attn_tp", "attn_cp", "attn_dcp", "moe_ep", "moe_dp", "moe_tp")}
RANKS = {f"{kind}_rank": 0 for kind in ("tp", "pp", "attn_dp", "attn_tp", "attn_cp", "moe_ep")}


def start(rendezvous):
    """One process that is all of its groups; after the first arguments are set."""
    if model_parallel_is_initialized():
        return
    init_distributed_environment(backend="gloo", world_size=1, rank=0, local_rank=0,
                                 distributed_init_method=f"file://{rendezvous}")
    get_parallel().override_permanently(**WIDTHS, **RANKS)
    initialize_model_parallel()


def held_by_model(folder, rendezvous):
    args = ServerArgs(model_path=folder, device="cpu", kv_cache_dtype="fp8_e4m3", skip_tokenizer_init=True,
                      disable_cuda_graph=True, attention_backend="torch_native")
    set_global_server_args_for_scheduler(args)
    start(rendezvous)
    config = ModelConfig.from_server_args(args)
    model = get_model_loader(LoadConfig(), config).load_model(model_config=config, device_config=DeviceConfig("cpu"))
    held = []
    for name, module in model.named_modules():
        if not hasattr(module, "k_scale_float"):
            continue
        layer = int(name.split("layers.")[1].split(".")[0])
        for side in "kv":
            # None: the layer has no scale at all, and its kernels take 1.
            number = getattr(module, f"{side}_scale_float")
            held.append([layer, side, [1.0 if number is None else number]])
    return held


def held_of_json(path):
    """The model gives one number to both sides of a layer."""
    found = kv_cache_scales_loader(path, 0, 1, LAYERS, "llama")
    return [[layer, side, [number]] for layer, number in found for side in "kv"]


def main():
    kvscale, out = sys.argv[1:3]
    cases, wrong = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for kv_heads in (8, 2):
            for form, layout, exact, target in WRITTEN:
                folder, written = export(kvscale, scratch, kv_heads, form, layout, exact, target)
                label = os.path.basename(folder)
                if form == "sglang-json":
                    held = held_of_json(os.path.join(folder, "kv_cache_scales.json"))
                else:
                    held = held_by_model(folder, os.path.join(scratch, "rendezvous"))
                cases.append({"form": form, "layout": layout, "exact": exact, "kv_heads": kv_heads, "written": written, "held": held})
                said = predictions(kvscale, folder, "sglang")
                if len(held) != len(said):
                    wrong.append(f"{label}: SGLang holds {len(held)} scales, kvscale says {len(said)}")
                wrong += [f"{label}: layer {layer} {side}: SGLang holds {values}, kvscale says {said[layer, side][0]}"
                          for layer, side, values in held if said[layer, side][0] != values]
                print(f"{label}: {len(held)} scales", flush=True)
    write_record(out, "sglang", sglang.__version__, cases)
    print("\n".join(wrong) if wrong else f"SGLang {sglang.__version__} holds what kvscale says")
    sys.exit(1 if wrong else 0)


main()
