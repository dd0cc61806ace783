#include "cli/engine_python.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "kvscale/error.h"

extern char** environ;

namespace kv::cli {
namespace {

// Prints one line that begins with KVSCALE and holds JSON. The engine runs in this process, without
// a server, so that its modules can be looked at.
constexpr const char* kVllm = R"py(
import json, os, sys
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
                  DO_NOT_TRACK="1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
import vllm
engine = vllm.LLM(model=sys.argv[1], enforce_eager=True, max_model_len=256)

def held(model):
    out = []
    for name, module in model.named_modules():
        if not hasattr(module, "_k_scale") or not hasattr(module, "kv_cache_dtype"):
            continue
        layer = int(name.split("layers.")[1].split(".")[0])
        for side in "kv":
            scale = getattr(module, f"_{side}_scale")
            number = getattr(module, f"_{side}_scale_float", None)
            out.append([layer, side, scale.flatten().float().tolist(), number, module.kv_cache_dtype])
    return out

print("KVSCALE" + json.dumps({"loader": "vllm " + vllm.__version__,
                              "scales": engine.apply_model(held)[0]}))
)py";

// The whole engine wants a GPU; its model classes and its loader run without.
constexpr const char* kSglang = R"py(
import json, os, sys, tempfile
os.environ.update(HF_HUB_OFFLINE="1", DO_NOT_TRACK="1")
import sglang
folder, out = sys.argv[1], []
table = os.path.join(folder, "kv_cache_scales.json")
if os.path.exists(table):
    from sglang.srt.model_loader.weight_utils import kv_cache_scales_loader
    with open(table) as file:
        written = json.load(file)
    ranks = written["kv_cache"]["scaling_factor"]
    for layer, number in kv_cache_scales_loader(table, 0, len(ranks), len(ranks["0"]), written.get("model_type")):
        out += [[layer, side, [number], number] for side in "kv"]
else:
    from sglang.srt.configs.device_config import DeviceConfig
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import init_distributed_environment, initialize_model_parallel
    from sglang.srt.model_loader.loader import get_model_loader
    from sglang.srt.runtime_context import get_parallel
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
    args = ServerArgs(model_path=folder, device="cpu", kv_cache_dtype="fp8_e4m3", skip_tokenizer_init=True,
                      disable_cuda_graph=True, attention_backend="torch_native")
    set_global_server_args_for_scheduler(args)
    with tempfile.TemporaryDirectory() as scratch:
        init_distributed_environment(backend="gloo", world_size=1, rank=0, local_rank=0,
                                     distributed_init_method="file://" + scratch + "/rendezvous")
        groups = ("tp", "pp", "attn_dp", "attn_tp", "attn_cp", "moe_ep")
        get_parallel().override_permanently(**{g + "_size": 1 for g in groups + ("attn_dcp", "moe_dp", "moe_tp")},
                                            **{g + "_rank": 0 for g in groups})
        initialize_model_parallel()
        config = ModelConfig.from_server_args(args)
        model = get_model_loader(LoadConfig(), config).load_model(model_config=config,
                                                                  device_config=DeviceConfig("cpu"))
    for name, module in model.named_modules():
        if hasattr(module, "k_scale_float"):
            layer = int(name.split("layers.")[1].split(".")[0])
            for side in "kv":
                number = getattr(module, side + "_scale_float")
                number = 1.0 if number is None else number  # its kernels take 1 then
                out.append([layer, side, [number], number])
print("KVSCALE" + json.dumps({"loader": "sglang " + sglang.__version__, "scales": out}))
)py";

constexpr const char* kTransformers = R"py(
import json, sys
import torch, transformers, compressed_tensors
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto",
                                                          local_files_only=True)
out = []
for name, module in model.named_modules():
    for side in "kv":
        scale = getattr(module, f"{side}_scale", None)
        if scale is not None and "layers." in name:
            layer = int(name.split("layers.")[1].split(".")[0])
            out.append([layer, side, scale.flatten().float().tolist(), None, ""])
loader = (f"transformers {transformers.__version__} with compressed-tensors "
          f"{compressed_tensors.__version__}")
print("KVSCALE" + json.dumps({"loader": loader, "scales": out}))
)py";

struct Finished {
  int code = -1;
  std::string text;  // what it printed, both streams
};

std::string read_all(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

Finished run_python(const std::string& python, const char* script, const std::string& folder) {
  std::array<int, 2> pipe_ends;
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    throw IoError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  std::string flag = "-c", code = script, name = python, path = folder;
  std::array<char*, 5> words = {name.data(), flag.data(), code.data(), path.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, name.c_str(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  Finished out;
  if (error == 0) {
    out.text = read_all(pipe_ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  ::close(pipe_ends[0]);
  if (error != 0) throw IoError(fmt::format("{}: cannot start: {}", python, std::strerror(error)));
  return out;
}

EngineReading parse(const std::string& line) {
  const nlohmann::json json = parse_json(line, "the engine's loader");
  EngineReading out;
  out.loader = json.at("loader").get<std::string>();
  for (const nlohmann::json& entry : json.at("scales")) {
    HeldScale held{entry.at(2).get<std::vector<float>>(), std::nullopt};
    if (entry.at(3).is_number()) held.number = entry.at(3).get<float>();
    out.scales[{entry.at(0).get<int>(), entry.at(1).get<std::string>().at(0)}] = std::move(held);
  }
  return out;
}

}  // namespace

EngineReading read_with_engine(const std::string& python, const std::string& engine,
                               const std::filesystem::path& folder) {
  const char* script = engine == "vllm" ? kVllm : engine == "sglang" ? kSglang : kTransformers;
  const Finished run = run_python(python, script, folder.string());
  const size_t at = run.text.rfind("KVSCALE{");
  if (run.code != 0 || at == std::string::npos) {
    const size_t tail = run.text.size() > 2000 ? run.text.size() - 2000 : 0;
    throw Error(fmt::format("{}: its loader did not read {} (exit code {}):\n{}", python,
                            folder.string(), run.code, run.text.substr(tail)));
  }
  try {
    return parse(run.text.substr(at + 7, run.text.find('\n', at) - at - 7));
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(
        fmt::format("{}: its loader answered something else: {}", python, error.what()));
  }
}

}  // namespace kv::cli
