#include "targets/directory_kind.h"

#include <algorithm>

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
  switch (kind) {
    case DirectoryKind::kPlain:
      return "no KV quantization declared, no scales";
    case DirectoryKind::kUndeclared:
      return "scales without a declaration";
    case DirectoryKind::kCtTensorKvOnly:
      return "compressed-tensors, KV only, per tensor";
    case DirectoryKind::kCtTensorFineWeights:
      return "compressed-tensors, weights per channel or block, KV per tensor";
    case DirectoryKind::kCtTensorCoarseWeights:
      return "compressed-tensors, weights per tensor or otherwise, KV per tensor";
    case DirectoryKind::kCtHead:
      return "compressed-tensors, KV per head";
    case DirectoryKind::kCtDynamic:
      return "compressed-tensors, dynamic KV";
    case DirectoryKind::kCtUnsupported:
      return "compressed-tensors, a KV scheme that no engine takes";
    case DirectoryKind::kCtOutputScale:
      return "compressed-tensors of 2024";
    case DirectoryKind::kModelOpt:
      return "ModelOpt, weights and KV";
    case DirectoryKind::kModelOptCast:
      return "ModelOpt, KV declared without scales";
    case DirectoryKind::kModelOptKvOnly:
      return "ModelOpt, KV only";
    case DirectoryKind::kModelOptAffine:
      return "ModelOpt, affine KV";
    case DirectoryKind::kModelOptFlatSide:
      return "ModelOpt, flat hf_quant_config.json only";
    case DirectoryKind::kModelOptProfileB:
      return "ModelOpt names, plain weights";
    case DirectoryKind::kFp8:
      return "AutoFP8";
    case DirectoryKind::kQuark:
      return "Quark";
    case DirectoryKind::kMistral:
      return "Mistral's own files";
    case DirectoryKind::kTensorRtLlm:
      return "legacy TensorRT-LLM checkpoint";
    case DirectoryKind::kSglangJson:
      return "SGLang JSON file";
    case DirectoryKind::kEdgeOnnx:
      return "Edge-LLM ONNX graph";
    case DirectoryKind::kOther:
      return "a method without FP8 KV scales";
  }
  return "";
}

}  // namespace kv
