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
  // Codes times an inline scale become F16 relative to a power of two above the scale, and as large
  // as F16 takes: 448 * 2^7 = 57,344.
  static constexpr float kLowestUnit = kInline ? 0x1p-60f : 1.0f;
  static constexpr float kUnitValue = kInline ? 128.0f : 1.0f;
  // Within shared memory, from a base aligned to 1024. Keys and values have rings of their own.
  static constexpr int kSidesAt = kQueryBytes;                            // [K, V][stage]
  static constexpr int kStagingAt = kSidesAt + 2 * kStages * kSideBytes;  // [K, V], codes
  static constexpr int kStagingBytes = kIsBf16 ? 0 : kKeys * kPadded;
  // The units of inline scales have a ring of their own. K's places in it are free two stages after
  // their keys'.
  static constexpr int kUnitStages = kInline ? kStages + 2 : 0;
  static constexpr int kUnitsAt = kStagingAt + 2 * kStagingBytes;      // [K, V][stage]
  static constexpr int kBarriersAt = kUnitsAt + 2 * kUnitStages * 32;  // [K, V][stage][full, empty]
  static constexpr int kUnitBarriersAt = kBarriersAt + 2 * kStages * 16;  // [stage][full, empty]
  static constexpr int kArrivedAt = kUnitBarriersAt + kUnitStages * 16;   // [K, V][warp]
  static constexpr int kSharedBytes = kArrivedAt + 2 * 4 * 8;
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
  /// The largest inline scale that each loading warp has in this stage.
  __device__ static uint32_t tops(uint32_t shared, Side side, int stage) {
    return shared + kUnitsAt + 32 * (static_cast<int>(side) * kUnitStages + stage);
  }
  /// What the scores or the result have to be multiplied by from this stage on, and old / new.
  __device__ static uint32_t unit(uint32_t shared, Side side, int stage) {
    return tops(shared, side, stage) + 16;
  }
  /// Of V's units.
  __device__ static uint32_t unit_full(uint32_t shared, int stage) {
    return shared + kUnitBarriersAt + 16 * stage;
  }
  __device__ static uint32_t unit_empty(uint32_t shared, int stage) {
    return unit_full(shared, stage) + 8;
  }
  /// The codes of a loading warp's keys are in its staging area.
  __device__ static uint32_t arrived(uint32_t shared, Side side, int warp) {
    return shared + kArrivedAt + 8 * (4 * static_cast<int>(side) + warp);
  }
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
