#pragma once

#include <cstdint>

#include "cache/kv_cache.h"

namespace kv::cuda {

/// How the cells of a cache are read: one kernel each.
enum class Cells { kBf16, kStatic, kInline };

/// What decode and prefill ask of a request, whatever its phase.
struct AttendRequest {
  const CacheView& cache;
  const uint16_t* q;
  int64_t q_row_stride, q_head_stride;
  const void* out;
  int64_t out_row_stride, out_head_stride;
  int64_t q_per_kv;
  float softmax_scale;
  bool fp8_math;
};

/// The cells of the request's cache; throws UnsupportedError naming what is needed and supported,
/// ValueError for a softmax_scale that is not positive.
Cells check_attend(const AttendRequest& request);

}  // namespace kv::cuda
