#include "targets/launch_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kvscale/error.h"

namespace kv {
namespace {

std::vector<std::string> command(const TargetRow& row, const std::string& model) {
  if (row.engine == "vllm") return {"vllm", "serve", model};
  if (row.engine == "sglang")
    return {"python3", "-m", "sglang.launch_server", "--model-path", model};
  if (row.engine == "llama-server") return {"llama-server", "-m", model};
  if (row.engine == "edge-llm") return {"tensorrt-edgellm-export", model};
  if (row.engine == "tensorrt-llm-legacy") return {"trtllm-build", "--checkpoint_dir", model};
  return {"trtllm-serve", model};
}

}  // namespace

LaunchLine launch_line(const TargetRow& row, const LaunchRequest& request, const std::string& form,
                       const std::string& model, const std::string& folder) {
  const LaunchFlags flags = launch_flags(request, row.name);
  if (!flags.can_express) {
    throw ValueError(fmt::format("target {}: {}", row.name, fmt::join(flags.notes, "; ")));
  }
  LaunchLine line;
  line.words = command(row, model);
  line.words.insert(line.words.end(), flags.flags.begin(), flags.flags.end());
  if (form == "sglang-json") {
    line.words.emplace_back("--quantization-param-path");
    line.words.push_back(folder + "/kv_cache_scales.json");
  }
  line.text = fmt::format("{}", fmt::join(line.words, " "));
  line.notes = flags.notes;
  return line;
}

}  // namespace kv
