// What the engine makes doubtful or breaks, beyond what the scales themselves say.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "targets/dry_run.h"

namespace kv {
namespace {

void add(DryRun& run, std::string id, std::string text, Severity severity) {
  run.warnings.push_back({std::move(id), run.target, std::move(text), severity});
}

bool holds_scales(const ScaleSet& set) {
  return std::ranges::any_of(set.scales, [](const StoredScale& scale) {
    return scale.side == ScaleSide::kK || scale.side == ScaleSide::kV;
  });
}

bool all_one(const ScaleSet& set) {
  return std::ranges::all_of(set.scales, [](const StoredScale& scale) {
    return std::ranges::all_of(scale.values, [](float v) { return v == 1.0f; });
  });
}

void check_vllm(const ScaleSet& set, const TargetRow& row, DryRun& run) {
  const bool is_ct = set.declared.family == ScaleFamily::kCompressedTensors;
  const bool is_flashinfer = row.name.find("flashinfer") != std::string_view::npos;
  if (is_ct && is_flashinfer && compare_versions(run.version, "0.20") < 0) {
    add(run, "flashinfer-old",
        "up to 0.19 this backend reads with 1.0 what was written with the scale: wrong results",
        Severity::kBroken);
  }
  if (run.kind == DirectoryKind::kCtHead && row.per_head == PerHeadScales::kMaximum) {
    add(run, "per-head", "the largest head's scale serves all heads of a rank, without a word",
        Severity::kDoubtful);
  }
  if (row.round == "truncate") {
    run.notes.emplace_back("the cache write truncates instead of rounding to nearest");
  }
  const bool rounds = run.outcome == LoadOutcome::kUsed && !is_ct;
  if (rounds && (set.geometry.dtype == "bfloat16" || set.geometry.dtype == "float16")) {
    run.notes.push_back(
        fmt::format("scales are held in the model's dtype, {}", set.geometry.dtype));
  }
  if (is_ct && run.auto_dtype != "16-bit") {
    run.notes.emplace_back("log and metrics go on saying kv_cache_dtype=auto: they prove nothing");
  }
  if (std::ranges::none_of(set.scales, [](const auto& s) { return s.side == ScaleSide::kQ; }) &&
      run.outcome == LoadOutcome::kUsed) {
    run.notes.emplace_back("q_scale is absent: 1.0, whatever the log says");
  }
}

void check_sglang(const ScaleSet& set, DryRun& run) {
  run.notes.emplace_back(
      "the log line about scales that default to 1.0 appears whether or not they were loaded");
  if (run.outcome == LoadOutcome::kUsed && holds_scales(set)) {
    run.notes.emplace_back(
        "no-sat: on torch up to 2.11, or on gfx94x, what lies beyond 464 times a scale becomes NaN "
        "instead of clipping");
  }
  if (run.kind != DirectoryKind::kSglangJson) return;
  if (set.declared.method.empty()) {
    add(run, "sglang-json", "model_type is absent: the file is refused, all scales become 1.0",
        Severity::kBroken);
  }
}

void check_edge_llm(const ScaleSet& set, DryRun& run) {
  for (const StoredScale& scale : set.scales) {
    if (scale.values.empty() || !(scale.values[0] < 0x1p-14f) || scale.values[0] <= 0) continue;
    if (scale.dtype != "BF16") continue;
    add(run, "fp16-underflow",
        fmt::format("{}: {:.4g} is below 2^-14: subnormal or zero once it is FP16", scale.tensor,
                    scale.values[0]),
        Severity::kDoubtful);
    return;
  }
}

// The engine runs, and the numbers in the file do not arrive.
void check_ignored(const ScaleSet& set, DryRun& run) {
  if (!holds_scales(set) || all_one(set)) return;
  if (run.outcome == LoadOutcome::kIgnored || run.outcome == LoadOutcome::kDefaults) {
    const bool is_head = run.kind == DirectoryKind::kCtHead;
    add(run, is_head ? "per-head" : "ignored",
        fmt::format("this engine does not use these scales: {}",
                    run.outcome == LoadOutcome::kIgnored
                        ? "the cache stays in 16 bit, or runs at 1.0 "
                          "when FP8 is forced"
                        : "the FP8 cache runs at 1.0"),
        Severity::kBroken);
  }
}

std::string id_of_refusal(const DryRun& run) {
  if (run.kind == DirectoryKind::kModelOptKvOnly) return "kv-only-modelopt";
  if (run.kind == DirectoryKind::kCtTensorKvOnly) return "kv-only-ct-trtllm";
  if (run.kind == DirectoryKind::kCtHead) return "per-head";
  return run.kind == DirectoryKind::kModelOptAffine ? "affine" : "refused";
}

}  // namespace

void check_target(const ScaleSet& set, const TargetRow& row, DryRun& run) {
  if (!run.starts) {
    add(run, id_of_refusal(run), "does not start: " + run.refusal, Severity::kBroken);
  }
  if (run.outcome == LoadOutcome::kUnknown) {
    add(run, "not-known",
        "nobody has looked at what this engine does with: " + std::string(name(run.kind)),
        Severity::kDoubtful);
  }
  check_ignored(set, run);
  if (row.engine == "vllm") check_vllm(set, row, run);
  if (row.engine == "sglang") check_sglang(set, run);
  if (row.engine == "edge-llm") check_edge_llm(set, run);
  if (!row.head_dims.take(set.geometry.head_dim) && set.geometry.head_dim > 0 &&
      !set.geometry.is_mla) {
    add(run, "head-dim",
        fmt::format("head_dim {} does not run with an FP8 cache on {}: it takes {}",
                    set.geometry.head_dim, row.backend, row.head_dims.text()),
        Severity::kBroken);
  }
}

}  // namespace kv
