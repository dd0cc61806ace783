#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/kv_cache.h"

namespace kv::cpu {

/// Keys are read in tiles that start at multiples of this many positions, whatever the block size
/// and the batch: so a query's additions happen in one order always.
inline constexpr int64_t kKeysPerTile = 64;

/// Attention of some query rows that share one KV head of one sequence.
struct AttendRows {
  const CacheView* cache = nullptr;
  const int32_t* blocks = nullptr;  // the sequence's row of the block table
  int64_t kv_head = 0;
  int64_t num_rows = 0;
  const uint16_t* q = nullptr;  // [num_rows, head_dim] bf16
  // [num_rows], ascending: a row sees the keys up to its position.
  const int64_t* positions = nullptr;
  int64_t window = 0;  // 0 = none
  // The keys of this part; first_key is a multiple of kKeysPerTile.
  int64_t first_key = 0, end_key = 0;
  float score_scale = 1;     // softmax scale times the static K scale
  float value_scale = 1;     // static V scale
  float soft_cap = 0;        // 0 = none
  bool fp8_weights = false;  // weights through E4M3 before they meet the values, not in the sum
  float* out = nullptr;      // [num_rows, value_dim]: sum of 2^(score - largest) * V
  // [num_rows] largest score, in powers of two (exp(x) = 2^score); -FLT_MAX when no key was seen.
  float* largest = nullptr;
  float* sum = nullptr;  // [num_rows] sum of 2^(score - largest)
};

/// Scratch of one thread for rows of a given size; grows on demand.
class AttendScratch {
 public:
  float* get(int64_t floats);
  ~AttendScratch();
  AttendScratch() = default;
  AttendScratch(const AttendScratch&) = delete;
  AttendScratch& operator=(const AttendScratch&) = delete;

 private:
  float* data_ = nullptr;
  int64_t size_ = 0;
};

/// Flash attention over the part's keys: codes widened exactly once per tile, a row's products
/// added in one order whatever the other rows. Unnormalised; see finish_rows. By fused
/// multiply-adds in F32, or where that is faster as attend_rows_bf16.h and attend_rows_amx.h say.
void attend_rows(const AttendRows& rows, AttendScratch& scratch);

/// Which of them attend_rows uses now over such pages: "f32", "bf16_dot" or "amx"; over latents "f32".
std::string_view attend_rows_kernel(const PageLayout& page = {});

/// Combines parts of the same rows in the order given and divides by the sums: out[row] =
/// softmax-weighted mean of V. One part is only divided. parts[i] points to [num_rows, head_dim]
/// values, its largest and sums. `sinks` [num_rows], in powers of two as `largest`, join the sums
/// as keys without a value; or null.
struct RowsPart {
  const float* values;
  const float* largest;
  const float* sum;
};
void finish_rows(std::span<const RowsPart> parts, int64_t num_rows, int64_t head_dim,
                 float value_scale, const float* sinks, float* out);

/// C[rows, n] = A[rows, k] B[k, n] (+ C when `accumulate`), F32, row-major with the given strides
/// in elements. n must be a multiple of 16. One element's terms are added in the order of k,
/// whatever the other sizes.
void gemm_f32(int64_t rows, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
              int64_t ldb, float* c, int64_t ldc, bool accumulate);

}  // namespace kv::cpu
