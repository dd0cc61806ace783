#include "targets/targets.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "kvscale/error.h"
#include "targets/vllm.h"

namespace kv {

std::span<const TargetRow> targets() { return vllm_targets(); }

const TargetRow& find_target(std::string_view name) {
  std::vector<std::string_view> known;
  for (const TargetRow& row : targets()) {
    if (row.name == name || row.engine == name) return row;
    known.push_back(row.name);
  }
  throw ValueError(
      fmt::format("target: expected one of {}, found \"{}\"", fmt::join(known, ", "), name));
}

LayoutSupport support(std::string_view layout, std::string_view target) {
  const TargetRow& row = find_target(target);
  if (layout == "bf16") return {"bf16", true, "bf16", ""};
  for (const LayoutSupport& one : row.layouts) {
    if (one.layout == layout) return one;
  }
  throw ValueError(
      fmt::format("target {}: layout: expected bf16, fp8_scale1, fp8_tensor, fp8_head or "
                  "fp8_token_head, found \"{}\"",
                  row.name, layout));
}

std::string LaunchFlags::text() const { return fmt::format("{}", fmt::join(flags, " ")); }

LaunchFlags launch_flags(const LaunchRequest& request, std::string_view target) {
  const LayoutSupport row = support(request.layout, target);
  if (!row.supported) {
    throw ValueError(fmt::format("target {}: {} does not run there: {}", find_target(target).name,
                                 request.layout, row.note));
  }
  return vllm_launch_flags(request, find_target(target));
}

}  // namespace kv
