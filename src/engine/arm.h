#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/capacity.h"
#include "numeric/rounding.h"
#include "ops/attend.h"

namespace kv {

/// Where an arm's scales come from.
enum class ArmLayout : uint8_t {
  kBf16,          // "bf16": the control
  kFp8Scale1,     // "fp8_scale1": E4M3, every scale 1.0
  kFp8Tensor,     // "fp8_tensor": one calibrated scale per layer and side
  kFp8Head,       // "fp8_head": one calibrated scale per layer, side and KV head
  kFp8TokenHead,  // "fp8_token_head": one scale per token and KV head, computed at the write,
                  // stored in the page
  kFp8DsMla,  // "fp8_ds_mla": latents (MLA) with a scale per token and 128 values, the rest BF16
  kQ8Block,   // "q8_0": llama.cpp's blocks of 32 with an F16 scale; of servers only
};

std::string_view name(ArmLayout layout);
Format stored_format(ArmLayout layout);

/// The FP8 layouts that caches of such layers have, cheapest in metadata first. A latent is one
/// vector for all heads: a scale per head is a scale per tensor, and no engine stores it with a
/// scale per token alone.
std::vector<ArmLayout> fp8_layouts(const std::vector<LayerGeometry>& layers);

/// The layers and sides that an FP8 arm keeps in BF16.
struct Bf16Side {
  int layer = 0;
  bool k = true, v = true;
  bool operator==(const Bf16Side&) const = default;
};

/// One way to store the cache, as it is compared: layout, layers kept in BF16, numerics of reading
/// and writing.
struct ArmSpec {
  ArmLayout layout = ArmLayout::kBf16;
  std::vector<Bf16Side> bf16;  // ascending by layer
  Math math = Math::kBf16;
  Rounding rounding = Rounding::kNearestEven;
  std::string scale_file;  // empty = calibrated in this run
  // First tokens of a sequence that stay in BF16 in every layer, of fp8_scale1 only. No engine has
  // it: 16-bit pages hold what codes would give back, so it is measured and not timed.
  int64_t sink = 0;

  bool operator==(const ArmSpec&) const = default;

  /// Reads LAYOUT[/bf16=0,3k,7v][/sink=4][/math=fp8][/round=truncate][/scales=FILE]. Throws
  /// ValueError naming the part that is not understood, with the nearest known word.
  static ArmSpec parse(std::string_view text);

  /// The spelling that parse() reads; equal arms have equal spellings.
  std::string text() const;

  /// Whether it has static scales that a calibration must supply.
  bool needs_scales() const {
    return layout == ArmLayout::kFp8Tensor || layout == ArmLayout::kFp8Head;
  }

  /// How each layer is stored behind the first `sink` tokens. Throws ValueError when a layer of the
  /// list is not in the model.
  std::vector<LayerFormat> formats(int64_t num_layers) const;

  /// The same arm with whole layers kept in BF16.
  ArmSpec with_bf16_layers(const std::vector<int>& layers) const;
};

}  // namespace kv
