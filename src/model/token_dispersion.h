#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/capacity.h"
#include "ops/store_kv.h"

namespace kv {

/// A plant for tests of the method: keys whose magnitude differs from token to token by powers of
/// two. A token's key is multiplied by 2^e(position) where it is stored, and what is read of it by
/// 2^-e, so that BF16 and a scale per token keep every bit and a scale for all tokens does not.
class TokenDispersion {
 public:
  using Exponent = std::function<int(int64_t position)>;

  explicit TokenDispersion(Exponent exponent) : exponent_(std::move(exponent)) {}

  /// 2^e of the token at a position.
  float factor(int64_t position) const;

  /// Multiplies k [factors.size(), width] bf16.
  static void disperse(std::span<const float> factors, int64_t width, uint16_t* k);

  /// Pages that can hold what the arm asks for: a key with a static scale is read by its own scale
  /// times 2^-e, so it lies in a page with a scale per token.
  static std::vector<LayerFormat> page_formats(std::vector<LayerFormat> asked);

  /// store_kv() of keys that were dispersed, into a page of page_formats(), with the factors taken
  /// out of what will be read.
  static KernelUsed store(StoreKvParams params, std::span<const float> factors, Format asked_k);

 private:
  Exponent exponent_;
};

}  // namespace kv
