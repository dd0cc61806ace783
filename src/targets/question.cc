#include "targets/question.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvscale/error.h"
#include "targets/targets.h"

namespace kv {
namespace {

TargetAnswer answer_row(const TargetQuestion& question, const TargetRow& row) {
  TargetAnswer out{std::string(row.name), false, "", ""};
  const LayoutSupport layout = support(question.layout, row.name);
  if (!question.device.empty() && !row.device_range.holds(find_device(question.device))) {
    out.reason = fmt::format("runs on {}", row.devices);
    return out;
  }
  if (!layout.supported) {
    out.reason = layout.note;
    return out;
  }
  const bool is_fp8 = question.layout != "bf16";
  if (is_fp8 && question.model.is_mla) {
    out.reason = "the model caches a latent (MLA): its backends and scales are others";
    return out;
  }
  // Inline scales run on Triton, whatever backend the row is of.
  const bool checks_head = is_fp8 && question.layout != "fp8_token_head";
  if (checks_head && question.model.head_dim > 0 && !row.head_dims.take(question.model.head_dim)) {
    out.reason =
        fmt::format("head_dim is {}, it takes {}", question.model.head_dim, row.head_dims.text());
    return out;
  }
  out.runs = true;
  out.math = layout.math;
  out.reason = layout.note;
  return out;
}

}  // namespace

std::vector<TargetAnswer> answer(const TargetQuestion& question) {
  if (!question.engine.empty()) find_target(question.engine);
  if (!question.device.empty()) find_device(question.device);
  std::vector<TargetAnswer> out;
  for (const TargetRow& row : targets()) {
    const bool is_asked =
        question.engine.empty() || row.name == question.engine || row.engine == question.engine;
    if (is_asked) out.push_back(answer_row(question, row));
  }
  std::ranges::stable_sort(
      out, [](const TargetAnswer& a, const TargetAnswer& b) { return a.runs && !b.runs; });
  return out;
}

}  // namespace kv
