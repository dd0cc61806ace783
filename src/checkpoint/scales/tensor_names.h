#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/scales/scale_set.h"

namespace kv {

/// What a tensor's name says.
struct TensorRole {
  enum class Kind : uint8_t {
    kScale,
    kSharedScale,  // one number for K and V
    kZeroPoint,
    kBias,  // the mean that an affine scheme subtracts
    kKeyNorm,
    kKeyBias,
    kKeyWeight,    // whose layer stores K and V
    kWeightScale,  // of weights or activations
    kUnread        // looks like a KV scale
  };
  Kind kind = Kind::kUnread;
  ScaleSide side = ScaleSide::kK;
  int layer = -1;
  std::string spelling;  // of scales
  std::string module;    // of kKeyWeight: the attention module, "model.layers.3.self_attn"
  std::string why;       // of kUnread
};

/// nullopt for tensors that have nothing to do with the cache. `num_layers` bounds layer numbers; 0
/// = not known.
std::optional<TensorRole> tensor_role(std::string_view name, int num_layers);

/// How well known a spelling is: of several for one layer and side, the smallest counts.
int spelling_rank(std::string_view spelling);

}  // namespace kv
