#pragma once

#include <cstdint>
#include <string_view>

#include "checkpoint/scales/scale_set.h"

namespace kv {

/// What an engine's loader tells checkpoints apart by, as far as KV scales go.
enum class DirectoryKind : uint8_t {
  kPlain,                  // nothing declared, no scales
  kUndeclared,             // scales without a declaration
  kCtTensorKvOnly,         // compressed-tensors, strategy tensor, plain weights
  kCtTensorFineWeights,    // ... weights per channel or block
  kCtTensorCoarseWeights,  // ... weights per tensor, or another scheme
  kCtHead,                 // strategy attn_head
  kCtDynamic,              // dynamic: true, no tensors
  kCtUnsupported,          // another scheme of the cache
  kCtOutputScale,          // names of 2024: k_proj.output_scale
  kModelOpt,               // quant_algo, KV algorithm, scales
  kModelOptCast,           // ... without scales
  kModelOptKvOnly,         // no quant_algo
  kModelOptAffine,         // k_bias beside the scales
  kModelOptFlatSide,       // only a flat hf_quant_config.json
  kModelOptProfileB,       // quant_algo FP8 with every linear excluded
  kFp8,
  kQuark,
  kMistral,
  kTensorRtLlm,
  kSglangJson,
  kEdgeOnnx,
  kOther  // a method without KV scales, or a KV format that is not FP8
};

std::string_view name(DirectoryKind kind);

DirectoryKind directory_kind(const ScaleSet& set);

}  // namespace kv
