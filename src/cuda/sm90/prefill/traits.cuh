#pragma once

#include "cuda/sm90/prefill/prefill_params.h"
#include "cuda/sm90/ptx.cuh"

namespace kv::cuda {

enum class PrefillCells { kBf16, kStatic, kInline };

inline constexpr float kPrefillLog2E = 1.4426950408889634f;
inline constexpr int kLoaderThreads = 128, kLoaderGroups = 2, kPrefillThreads = 512;

/// A side's stage of the ring; the parity flips on every round.
struct PrefillCursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

template <PrefillCells kCellsOf, int kDim, bool kFp8MathOf>
struct PrefillTraits {
  static constexpr PrefillCells kCells = kCellsOf;
  static constexpr bool kIsBf16 = kCellsOf == PrefillCells::kBf16;
  static constexpr bool kFp8Math = kFp8MathOf;
  static constexpr bool kInline = kCellsOf == PrefillCells::kInline;
  static constexpr bool kStatic = kCellsOf == PrefillCells::kStatic;
  static constexpr int kHeadDim = kDim;
  static constexpr int kPadded = (kDim + 63) / 64 * 64;  // 96: the last 32 dimensions are zeros
  // Products of E4M3 codes as they are; head_dim 256 has no registers for them and takes F16.
  static constexpr bool kE4m3 = kFp8MathOf && kPadded <= 128;
  static constexpr int kValueBytes = kE4m3 ? 1 : 2;        // of a factor in shared memory
  static constexpr int kRowBytes = kE4m3 ? kPadded : 128;  // of a row of Q or K within a column
  static constexpr int kKeys = kPadded > 128 ? 64 : 128;   // of a stage
  static constexpr int kOutColumns = kPadded < 128 ? kPadded : 128;  // of one product with values
  static constexpr int kOutTiles = kPadded / kOutColumns;
  static constexpr int kStages = kPadded == 64 || kE4m3 ? 4 : 2;
  static constexpr int kSideBytes = kKeys * kPadded * kValueBytes;
  static constexpr int kQueryBytes = kPrefillRows * kPadded * kValueBytes;
  static constexpr float kLowestUnit = kInline ? 0x1p-60f : 1.0f;  // of inline scales of V
  // Within shared memory, from a base aligned to 1024. Keys and values have rings of their own.
  static constexpr int kSidesAt = kQueryBytes;                            // [K, V][stage]
  static constexpr int kStagingAt = kSidesAt + 2 * kStages * kSideBytes;  // [K, V], codes
  static constexpr int kStagingBytes = kIsBf16 ? 0 : kKeys * kPadded;
  static constexpr int kScalesAt = kStagingAt + 2 * kStagingBytes;      // [K, V][stage][key]
  static constexpr int kUnitsAt = kScalesAt + 2 * kStages * kKeys * 4;  // of K's stages
  static constexpr int kBarriersAt = kUnitsAt + kStages * 32;  // [K, V][stage][full, empty]
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 16 + 1024;
  // 65,536 registers for two warpgroups of each kind.
  static constexpr int kLoaderRegisters = kPadded > 128 ? 40 : kStatic ? 48 : 56;
  static constexpr int kWorkerRegisters = 256 - kLoaderRegisters;

  __device__ static uint32_t full(uint32_t shared, Side side, int stage) {
    return shared + kBarriersAt + 16 * (static_cast<int>(side) * kStages + stage);
  }
  __device__ static uint32_t empty(uint32_t shared, Side side, int stage) {
    return full(shared, side, stage) + 8;
  }
  __device__ static uint32_t tile(uint32_t shared, Side side, int stage) {
    return shared + kSidesAt + (static_cast<int>(side) * kStages + stage) * kSideBytes;
  }
  __device__ static uint32_t staging(uint32_t shared, Side side) {
    return shared + kStagingAt + static_cast<int>(side) * kStagingBytes;
  }
  __device__ static uint32_t scales(uint32_t shared, Side side, int stage) {
    return shared + kScalesAt + 4 * kKeys * (static_cast<int>(side) * kStages + stage);
  }
  /// The largest inline scale of V that each loading warp has in this stage.
  __device__ static uint32_t tops(uint32_t shared, int stage) {
    return shared + kUnitsAt + 32 * stage;
  }
  /// The power of two that V's scales are relative to from this stage on, and old / new.
  __device__ static uint32_t unit(uint32_t shared, int stage) { return tops(shared, stage) + 16; }
};

/// Which keys a tile of queries sees: stages of kKeys from begin.
struct KeyRange {
  int begin, end;
};

template <class T>
__device__ KeyRange key_range(const PrefillParams& p, const PrefillTile& tile) {
  const int first = p.window > 0 ? max(0, tile.position - p.window + 1) : 0;
  return {first / T::kKeys * T::kKeys, tile.position + tile.num_tokens};
}

}  // namespace kv::cuda
