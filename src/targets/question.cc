#include "targets/question.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvscale/error.h"
#include "targets/latent_backends.h"
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

std::vector<TargetAnswer> answers_of_rows(const TargetQuestion& question) {
  std::vector<TargetAnswer> out;
  for (const TargetRow& row : targets()) {
    const bool is_asked =
        question.engine.empty() || row.name == question.engine || row.engine == question.engine;
    if (is_asked) out.push_back(answer_row(question, row));
  }
  return out;
}

/// A model that caches a latent, on a backend for such models.
TargetAnswer answer_latent(const TargetQuestion& question, const LatentBackend& backend) {
  TargetAnswer out{std::string(backend.name), false, "", ""};
  if (!question.device.empty() && !backend.device_range.holds(find_device(question.device))) {
    out.reason = fmt::format("runs on {}", backend.devices);
    return out;
  }
  if (question.model.is_sparse_mla != backend.is_sparse) {
    out.reason = backend.is_sparse ? "is for models with an indexer (index_topk)"
                                   : "does not run models with an indexer (index_topk)";
    return out;
  }
  if (question.layout == "bf16") {
    out.runs = true;
    out.math = "bf16";
    return out;
  }
  const auto known = std::ranges::find(backend.layouts, question.layout, &LayoutSupport::layout);
  if (known == backend.layouts.end()) {
    out.reason = "a latent is one vector for all heads: no backend takes this layout of it";
    return out;
  }
  out.runs = known->supported;
  out.math = known->supported ? known->math : "";
  out.reason = known->note;
  return out;
}

std::vector<TargetAnswer> answers_of_latent(const TargetQuestion& question) {
  std::vector<TargetAnswer> out;
  const std::string_view engine =
      question.engine.empty() ? "" : std::string_view(find_target(question.engine).engine);
  for (const LatentBackend& backend : latent_backends()) {
    if (engine.empty() || backend.engine == engine) out.push_back(answer_latent(question, backend));
  }
  if (out.empty()) {
    out.push_back({question.engine, false,
                   "the model caches a latent (MLA): of this engine's backends for it nothing is "
                   "known here",
                   ""});
  }
  return out;
}

/// What is no layout anywhere is a slip of the pen.
void expect_layout(const TargetQuestion& question) {
  const bool is_of_latents = question.layout == "fp8_ds_mla";
  if (!is_of_latents) support(question.layout, targets().front().name);
  if (!is_of_latents || question.model.is_mla) return;
  throw ValueError("layout fp8_ds_mla: expected --model with a latent cache (kv_lora_rank)");
}

}  // namespace

std::vector<TargetAnswer> answer(const TargetQuestion& question) {
  if (!question.engine.empty()) find_target(question.engine);
  if (!question.device.empty()) find_device(question.device);
  expect_layout(question);
  std::vector<TargetAnswer> out =
      question.model.is_mla ? answers_of_latent(question) : answers_of_rows(question);
  std::ranges::stable_sort(
      out, [](const TargetAnswer& a, const TargetAnswer& b) { return a.runs && !b.runs; });
  return out;
}

}  // namespace kv
