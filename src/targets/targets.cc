#include "targets/targets.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kvscale/error.h"
#include "targets/edge_llm.h"
#include "targets/llama_server.h"
#include "targets/sglang.h"
#include "targets/tensorrt_llm.h"
#include "targets/vllm.h"

namespace kv {
namespace {

std::vector<TargetRow> all_rows() {
  std::vector<TargetRow> rows;
  for (const auto part : {vllm_targets(), sglang_targets(), tensorrt_llm_targets(),
                          edge_llm_targets(), llama_server_targets()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace

bool HeadDims::take(int head_dim) const {
  if (!listed.empty()) return std::ranges::find(listed, head_dim) != listed.end();
  return head_dim % multiple == 0 && head_dim >= least && head_dim <= most;
}

std::string HeadDims::text() const {
  if (!listed.empty()) return fmt::format("{}", fmt::join(listed, ", "));
  if (multiple == 1 && least == 1) return "not determined";
  const std::string bounds =
      most < (1 << 20) ? fmt::format("{} to {}", least, most) : fmt::format("{} or more", least);
  return multiple > 1 ? fmt::format("multiples of {}, {}", multiple, bounds) : bounds;
}

std::span<const TargetRow> targets() {
  static const std::vector<TargetRow> rows = all_rows();
  return rows;
}

std::vector<std::string_view> engines() {
  std::vector<std::string_view> names;
  for (const TargetRow& row : targets()) {
    if (std::ranges::find(names, row.engine) == names.end()) names.push_back(row.engine);
  }
  return names;
}

const TargetRow& find_target(std::string_view name) {
  const size_t at = name.find('@');
  const std::string_view target = name.substr(0, at);
  std::vector<std::string_view> known;
  for (const TargetRow& row : targets()) {
    known.push_back(row.name);
    if (row.name != target && row.engine != target) continue;
    if (at == std::string_view::npos) return row;
    const DeviceRow& device = find_device(name.substr(at + 1));
    if (row.device_range.holds(device)) return row;
    if (row.name == target) {
      throw ValueError(
          fmt::format("target {}: runs on {}, not on {}", row.name, row.devices, device.name));
    }
  }
  throw ValueError(
      fmt::format("target: expected one of {}, found \"{}\"", fmt::join(known, ", "), name));
}

std::string full_target_name(std::string_view name) {
  const size_t at = std::min(name.find('@'), name.size());
  return std::string(find_target(name).name) + std::string(name.substr(at));
}

LayoutSupport support(std::string_view layout, std::string_view target) {
  const TargetRow& row = find_target(target);
  if (layout == "bf16") return {"bf16", true, "bf16", ""};
  for (const auto part : {row.layouts, row.own_layouts}) {
    const auto found = std::ranges::find(part, layout, &LayoutSupport::layout);
    if (found != part.end()) return *found;
  }
  if (layout == "q8_0") return {"q8_0", false, "q8_0", "q8_0 is llama.cpp's, no FP8 layout"};
  throw ValueError(
      fmt::format("target {}: layout: expected bf16, fp8_scale1, fp8_tensor, fp8_head, "
                  "fp8_token_head or q8_0, found \"{}\"",
                  row.name, layout));
}

std::string LaunchFlags::text() const { return fmt::format("{}", fmt::join(flags, " ")); }

std::vector<std::string_view> targets_that_run(std::string_view layout) {
  std::vector<std::string_view> names;
  for (const TargetRow& row : targets()) {
    if (support(layout, row.name).supported) names.push_back(row.name);
  }
  return names;
}

LaunchFlags launch_flags(const LaunchRequest& request, std::string_view target) {
  const LayoutSupport layout = support(request.layout, target);
  const TargetRow& row = find_target(target);
  if (!layout.supported) {
    throw ValueError(fmt::format("target {}: {} does not run there: {}; it runs on {}", row.name,
                                 request.layout, layout.note,
                                 fmt::join(targets_that_run(request.layout), ", ")));
  }
  if (row.engine == "sglang") return sglang_launch_flags(request);
  if (row.engine == "tensorrt-llm") return tensorrt_llm_launch_flags(request);
  if (row.engine == "tensorrt-llm-legacy") return tensorrt_llm_legacy_launch_flags(request);
  if (row.engine == "edge-llm") return edge_llm_launch_flags(request);
  if (row.engine == "llama-server") return llama_server_launch_flags(request);
  return vllm_launch_flags(request, row);
}

}  // namespace kv
