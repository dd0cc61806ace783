#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define KV_DEVICE __device__
#else
#define KV_DEVICE
#endif

namespace kv::cuda {

/// n / divisor for n below 2^31 by a product: a division costs a store kernel as much
/// as a vector.
struct Divisor {
  uint32_t divisor = 1, magic = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(uint32_t d)
      : divisor(d),
        magic(static_cast<uint32_t>(
            ((uint64_t{1} << 32) * ((uint64_t{1} << std::bit_width(d - 1)) - d)) / d + 1)),
        shift(static_cast<uint32_t>(std::bit_width(d - 1))) {}

  KV_DEVICE uint32_t quotient(uint32_t n) const {
    return (static_cast<uint32_t>((uint64_t{n} * magic) >> 32) + n) >> shift;
  }
};

}  // namespace kv::cuda
