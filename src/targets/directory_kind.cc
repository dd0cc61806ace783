#include "targets/directory_kind.h"

#include <algorithm>
#include <array>

namespace kv {
namespace {

bool has_kv_scales(const ScaleSet& set) {
  return std::ranges::any_of(set.scales, [](const StoredScale& scale) {
    return scale.side == ScaleSide::kK || scale.side == ScaleSide::kV;
  });
}

DirectoryKind compressed_tensors_kind(const ScaleSet& set) {
  const KvDeclaration& d = set.declared;
  if (!d.has_kv) return has_kv_scales(set) ? DirectoryKind::kUndeclared : DirectoryKind::kPlain;
  const bool is_known = d.strategy == "tensor" || d.strategy == "attn_head";
  if (!d.is_fp8 || !d.is_symmetric || !is_known) return DirectoryKind::kCtUnsupported;
  if (d.is_dynamic) return DirectoryKind::kCtDynamic;
  if (d.strategy == "attn_head") return DirectoryKind::kCtHead;
  const bool is_old = std::ranges::any_of(set.scales, [](const StoredScale& scale) {
    return scale.spelling.ends_with("output_scale");
  });
  if (is_old) return DirectoryKind::kCtOutputScale;
  switch (d.weights) {
    case WeightScheme::kPlain:
      return DirectoryKind::kCtTensorKvOnly;
    case WeightScheme::kPerChannel:
    case WeightScheme::kBlock:
      return DirectoryKind::kCtTensorFineWeights;
    default:
      return DirectoryKind::kCtTensorCoarseWeights;
  }
}

DirectoryKind modelopt_kind(const ScaleSet& set) {
  const KvDeclaration& d = set.declared;
  const bool is_affine = std::ranges::any_of(set.companions, [](const ScaleCompanion& companion) {
    return companion.kind == ScaleCompanion::Kind::kBias;
  });
  if (is_affine) return DirectoryKind::kModelOptAffine;
  if (!d.has_kv && !has_kv_scales(set)) return DirectoryKind::kPlain;
  if (d.has_kv && !d.is_fp8) return DirectoryKind::kOther;
  if (d.quant_algo.empty()) return DirectoryKind::kModelOptKvOnly;
  if (!d.has_inline && d.side_is_flat) return DirectoryKind::kModelOptFlatSide;
  if (!has_kv_scales(set)) return DirectoryKind::kModelOptCast;
  return d.ignores_all ? DirectoryKind::kModelOptProfileB : DirectoryKind::kModelOpt;
}

}  // namespace

DirectoryKind directory_kind(const ScaleSet& set) {
  switch (set.declared.family) {
    case ScaleFamily::kNone:
      return has_kv_scales(set) ? DirectoryKind::kUndeclared : DirectoryKind::kPlain;
    case ScaleFamily::kCompressedTensors:
      return compressed_tensors_kind(set);
    case ScaleFamily::kModelOpt:
      return modelopt_kind(set);
    case ScaleFamily::kFp8:
      return DirectoryKind::kFp8;
    case ScaleFamily::kQuark:
      return DirectoryKind::kQuark;
    case ScaleFamily::kMistral:
      return DirectoryKind::kMistral;
    case ScaleFamily::kTensorRtLlm:
      return DirectoryKind::kTensorRtLlm;
    case ScaleFamily::kSglangJson:
      return DirectoryKind::kSglangJson;
    case ScaleFamily::kEdgeOnnx:
      return DirectoryKind::kEdgeOnnx;
    case ScaleFamily::kScaleFile:  // no engine reads it
    case ScaleFamily::kOther:
      return DirectoryKind::kOther;
  }
  return DirectoryKind::kOther;
}

std::string_view name(DirectoryKind kind) {
  static constexpr std::array<std::string_view, 22> kNames = {
      "no KV quantization declared, no scales",
      "scales without a declaration",
      "compressed-tensors, KV only, per tensor",
      "compressed-tensors, weights per channel or block, KV per tensor",
      "compressed-tensors, weights per tensor or otherwise, KV per tensor",
      "compressed-tensors, KV per head",
      "compressed-tensors, dynamic KV",
      "compressed-tensors, a KV scheme that no engine takes",
      "compressed-tensors of 2024",
      "ModelOpt, weights and KV",
      "ModelOpt, KV declared without scales",
      "ModelOpt, KV only",
      "ModelOpt, affine KV",
      "ModelOpt, flat hf_quant_config.json only",
      "ModelOpt names, plain weights",
      "AutoFP8",
      "Quark",
      "Mistral's own files",
      "legacy TensorRT-LLM checkpoint",
      "SGLang JSON file",
      "Edge-LLM ONNX graph",
      "a method without FP8 KV scales",
  };
  return kNames.at(static_cast<size_t>(kind));
}

}  // namespace kv
