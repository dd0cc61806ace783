#include "cuda/sm90/tensor_map.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "cuda/device.h"

namespace kv::cuda {
namespace {

/// The driver's encoder, found at run time: nothing links the driver's library.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result),
        "attend: cuTensorMapEncodeTiled");
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    check(cudaErrorSymbolNotFound, "attend: cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
}

}  // namespace

PageMap page_map(const CacheView& cache, int words) {
  static const auto encode = encoder();
  const SideLayout& side = cache.page.side(Side::kK);
  const bool is_hnd = cache.page.order == PageOrder::kHnd;
  const int slots_of_row = side.slot_stride % 16 == 0 ? 1 : 2;
  const auto row_bytes = static_cast<cuuint64_t>(slots_of_row * side.slot_stride);
  PageMap out;
  out.pair_words = slots_of_row == 1 ? 0 : static_cast<int>(side.slot_stride / 4);
  out.head_words = is_hnd ? 0 : static_cast<int>(side.head_stride / 4);
  out.head_step = is_hnd ? 1 : 0;
  const cuuint64_t sizes[4] = {row_bytes / 4,
                               static_cast<cuuint64_t>(cache.page.block_size / slots_of_row),
                               static_cast<cuuint64_t>(is_hnd ? cache.page.num_kv_heads : 1),
                               static_cast<cuuint64_t>(cache.num_blocks)};
  const auto block_stride = static_cast<cuuint64_t>(cache.block_stride);
  const cuuint64_t strides[3] = {
      row_bytes, is_hnd ? static_cast<cuuint64_t>(side.head_stride) : block_stride, block_stride};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(words),
                             static_cast<cuuint32_t>(16 / slots_of_row), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, cache.data, sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(static_cast<int>(result), "attend: cuTensorMapEncodeTiled");
  static_assert(sizeof(map) == sizeof(out.map));
  std::memcpy(&out.map, &map, sizeof(map));
  return out;
}

}  // namespace kv::cuda
