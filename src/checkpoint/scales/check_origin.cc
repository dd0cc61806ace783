// Findings about how the scales were made, told by what is written beside them.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "checkpoint/scales/diagnose.h"

namespace kv {
namespace {

using Warnings = std::vector<ScaleWarning>;

bool has_kv_scales(const ScaleSet& set) {
  return std::ranges::any_of(set.scales, [](const StoredScale& scale) {
    return scale.side == ScaleSide::kK || scale.side == ScaleSide::kV;
  });
}

// "0.18.1" -> 18; -1 when it is no such version.
int minor_version(const std::string& version) {
  if (!version.starts_with("0.")) return -1;
  int minor = -1;
  std::from_chars(version.data() + 2, version.data() + version.size(), minor);
  return minor;
}

// The observer that ran: the file's, else the default of the release that wrote it.
std::string observer_of(const KvDeclaration& declared) {
  if (!declared.observer.empty()) return declared.observer;
  const int minor = minor_version(declared.version);
  if (minor < 0) return "";
  return minor >= 14 && minor <= 18 ? "memoryless_minmax" : "minmax";
}

void check_observer(const ScaleSet& set, Warnings& out) {
  const KvDeclaration& declared = set.declared;
  if (declared.family != ScaleFamily::kCompressedTensors || !declared.has_kv || set.record) return;
  const std::string observer = observer_of(declared);
  const std::string how =
      declared.observer.empty()
          ? fmt::format("no observer is named and version is {}", declared.version)
          : fmt::format("observer is {}", observer);
  if (observer == "memoryless_minmax" || observer == "memoryless_mse") {
    out.push_back({"one-sample", "kv_cache_scheme",
                   how + ": the scales come from the last calibration batch only; recalibrate with "
                         "observer static_minmax",
                   Severity::kDoubtful});
  } else if (observer == "minmax" || observer == "mse") {
    out.push_back({"ema", "kv_cache_scheme",
                   how +
                       ": a moving average, below the true amax (9 % typically, half at worst), so "
                       "that it clips its own calibration data; recalibrate with observer "
                       "static_minmax",
                   Severity::kDoubtful});
  }
}

bool uses_output_scale(const ScaleSet& set) {
  return std::ranges::any_of(set.scales, [](const StoredScale& scale) {
    return scale.spelling.ends_with("k_proj.output_scale");
  });
}

void check_rope_stage(const ScaleSet& set, Warnings& out) {
  const KvDeclaration& declared = set.declared;
  const bool is_old = declared.family == ScaleFamily::kCompressedTensors && uses_output_scale(set);
  const bool is_recorded = set.record && set.record->k_stage == "pre_rope";
  if (declared.k_post_rope != false && !is_old && !is_recorded) return;
  out.push_back({"pre-rope", declared.source,
                 "K was measured before RoPE; engines quantize it after: off by up to sqrt(2)",
                 Severity::kDoubtful});
}

void check_padding(const ScaleSet& set, Warnings& out) {
  const bool is_auto = set.declared.family == ScaleFamily::kFp8 && set.declared.has_kv;
  if (!is_auto && set.declared.family != ScaleFamily::kEdgeOnnx) return;
  out.push_back(
      {"padding", set.declared.source,
       "the tool that writes these pads its calibration data, and pad tokens were measured",
       Severity::kNote});
}

void check_q(const ScaleSet& set, Warnings& out) {
  const auto q = std::ranges::find(set.scales, ScaleSide::kQ, &StoredScale::side);
  if (q == set.scales.end() || set.declared.family != ScaleFamily::kCompressedTensors) return;
  if (minor_version(set.declared.version) < 19) return;  // what LLM Compressor 0.14 pins
  out.push_back(
      {"q-garbage", place_of(*q),
       "LLM Compressor 0.14 never observes Q and saves uninitialised memory as q_scale: do "
       "not use it",
       Severity::kDoubtful});
}

void check_method(const ScaleSet& set, Warnings& out) {
  const KvDeclaration& d = set.declared;
  if (d.has_kv && d.kv_algorithm.starts_with("NVFP4")) {
    out.push_back(
        {"nvfp4-2688", d.source,
         "ModelOpt before 2026-01-20 divided by 2688, later by 448: the file does not say "
         "which",
         Severity::kDoubtful});
  }
  if (d.family == ScaleFamily::kModelOpt && d.has_kv && d.quant_algo.empty()) {
    out.push_back({"kv-only-modelopt", d.source,
                   "a KV algorithm without quant_algo: vLLM and SGLang refuse to load it "
                   "(TensorRT-LLM and Edge-LLM do); kvscale export --form modelopt writes what all "
                   "of them take",
                   Severity::kDoubtful});
  }
  if (d.rotates_cache) {
    out.push_back(
        {"r3", d.source,
         "transform_config rotates Q and K after RoPE: the scales are of rotated K, and the "
         "engine has to rotate too (vLLM does not)",
         Severity::kDoubtful});
  }
  const bool is_refused =
      d.family == ScaleFamily::kCompressedTensors && d.has_kv &&
      (!d.is_fp8 || !d.is_symmetric || (d.strategy != "tensor" && d.strategy != "attn_head"));
  if (is_refused) {
    out.push_back(
        {"scheme", d.source,
         fmt::format("kv_cache_scheme: {}, strategy {:?}, {}symmetric: engines take 8-bit "
                     "float, symmetric, strategy \"tensor\" or \"attn_head\"",
                     d.kv_algorithm, d.strategy, d.is_symmetric ? "" : "not "),
         Severity::kDoubtful});
  }
}

void check_companions(const ScaleSet& set, Warnings& out) {
  const auto bias =
      std::ranges::find(set.companions, ScaleCompanion::Kind::kBias, &ScaleCompanion::kind);
  if (bias != set.companions.end()) {
    out.push_back(
        {"affine", fmt::format("layer {}", bias->layer),
         fmt::format("{}: a mean is subtracted before quantizing, and the scale is that of "
                     "the centred values: useless without it. vLLM refuses to load it",
                     bias->tensor),
         Severity::kBroken});
  }
  const auto shifted = std::ranges::find_if(set.companions, [](const ScaleCompanion& companion) {
    return companion.kind == ScaleCompanion::Kind::kZeroPoint && !companion.is_zero;
  });
  if (shifted != set.companions.end()) {
    out.push_back({"zero-point", fmt::format("layer {}", shifted->layer),
                   fmt::format("{} is not zero: an asymmetric cache, which no engine serves",
                               shifted->tensor),
                   Severity::kBroken});
  }
}

void check_model(const ScaleSet& set, Warnings& out) {
  if (set.geometry.is_mla && has_kv_scales(set)) {
    out.push_back({"mla", "config.json",
                   "the model caches one latent per token (kv_lora_rank); most tools measure the "
                   "expanded K instead, whose scale does not describe it",
                   Severity::kDoubtful});
  }
  const bool per_head = std::ranges::any_of(set.scales, [&](const StoredScale& scale) {
    return scale.side == ScaleSide::kK && scale.values.size() > 1 &&
           scale_shape(scale, set.geometry) == ScaleShape::kPerKvHead;
  });
  if (per_head) {
    out.push_back(
        {"per-head", "every layer",
         "scales per head: only vLLM's FlashAttention backend uses them; see inspect --for",
         Severity::kNote});
  }
}

}  // namespace

void check_origin(const ScaleSet& set, Warnings& out) {
  if (has_kv_scales(set)) {
    check_observer(set, out);
    check_rope_stage(set, out);
    check_padding(set, out);
    check_q(set, out);
  }
  check_method(set, out);
  check_companions(set, out);
  check_model(set, out);
}

}  // namespace kv
