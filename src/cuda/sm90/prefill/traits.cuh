#pragma once

#include "cuda/sm90/prefill/prefill_params.h"
#include "cuda/sm90/ptx.cuh"

namespace kv::cuda {

enum class PrefillCells { kBf16, kStatic, kInline };

inline constexpr float kPrefillLog2E = 1.4426950408889634f;
inline constexpr int kLoaderThreads = 128, kLoaderGroups = 2, kPrefillThreads = 512;

template <PrefillCells kCellsOf, int kDim, bool kFp8MathOf>
struct PrefillTraits {
  static constexpr PrefillCells kCells = kCellsOf;
  static constexpr bool kIsBf16 = kCellsOf == PrefillCells::kBf16;
  static constexpr bool kFp8Math = kFp8MathOf;
  static constexpr bool kInline = kCellsOf == PrefillCells::kInline;
  static constexpr bool kStatic = kCellsOf == PrefillCells::kStatic;
  static constexpr int kHeadDim = kDim;
  static constexpr int kPadded = (kDim + 63) / 64 * 64;  // 96: the last 32 dimensions are zeros
  static constexpr int kColumns = kPadded / 64;
  static constexpr int kKeys = kPadded > 128 ? 64 : 128;  // of a stage
  static constexpr int kKeyColumns = kKeys / 64;
  static constexpr int kStages = kPadded == 64 ? 4 : 2;
  static constexpr int kSideBytes = kKeys * kPadded * 2;
  static constexpr int kQueryBytes = kPrefillRows * kPadded * 2;
  // Within shared memory, from a base aligned to 1024.
  static constexpr int kStagesAt = kQueryBytes;
  static constexpr int kScalesAt = kStagesAt + kStages * 2 * kSideBytes;  // [stage][K, V][key]
  static constexpr int kUnitsAt = kScalesAt + kStages * 2 * kKeys * 4;    // [stage][loader warp]
  static constexpr int kFactorsAt = kUnitsAt + kStages * 16;              // [row]
  static constexpr int kBarriersAt = kFactorsAt + kPrefillRows * 4;       // [stage][full, empty]
  static constexpr int kSharedBytes = kBarriersAt + kStages * 16 + 1024;
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
