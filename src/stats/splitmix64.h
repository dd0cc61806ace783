#pragma once

#include <cstdint>
#include <string_view>

namespace kv {

/// The finaliser of SplitMix64: a bijection of 64-bit numbers that spreads every bit.
constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo). Turns a task's name into a number for seeding.
constexpr uint64_t fnv1a64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

/// SplitMix64 (Steele, Lea, Flood 2014): the one random generator of the project. The same seed
/// gives the same numbers on every machine, unlike the distributions of <random>.
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next() { return mix(state_ += kStep); }

  /// A number in [0, n): the high 64 bits of next() * n. n > 0 (n = 0 gives 0). The bias is below
  /// n / 2^64.
  constexpr uint64_t below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }

  /// A number in [0, 1), a multiple of 2^-53.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  /// The state in which replicate r (0-based) starts: the (r+1)-th output of SplitMix64(seed).
  /// Found without the outputs before it, so replicates can run on any thread in any order.
  static constexpr uint64_t replicate_seed(uint64_t seed, uint64_t replicate) {
    return mix(seed + (replicate + 1) * kStep);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, odd
  uint64_t state_;
};

}  // namespace kv
