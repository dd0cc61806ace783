#include "cpu/attend_rows_amx.h"

#include <algorithm>

#include "cpu/amx_tiles.h"
#include "kvscale/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attend_rows_amx.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "cpu/attend_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
#pragma GCC push_options
#pragma GCC target("avx512bf16")
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kColumns = 16;  // of a tile of sums

/// Tiles 0 to 3 are sums and 4 and 5 rows of queries or probabilities, of the block's rows; 6 and 7
/// are keys or values.
void Configure(int64_t num_rows) {
  const auto n = static_cast<int>(num_rows);
  amx::configure(amx::config({n, n, n, n, n, n, 16, 16}));
}

/// scores[rows][64] = q . keys
void ScoreBlock(const Tile& t, int64_t row, float* scores) {
  using namespace amx;
  constexpr int64_t kStride = kTile * 4;
  zero<0>(), zero<1>(), zero<2>(), zero<3>();
  const uint16_t* q = t.q + row * t.padded_dim;
  for (int64_t d = 0; d < t.padded_dim; d += kTileValues) {
    const uint32_t* keys = t.keys + d / 2 * kTile;
    load<4>(q + d, t.padded_dim * 2);
    load<6>(keys, kStride);
    load<7>(keys + kColumns, kStride);
    multiply<0, 4, 6>();
    multiply<1, 4, 7>();
    load<6>(keys + 2 * kColumns, kStride);
    load<7>(keys + 3 * kColumns, kStride);
    multiply<2, 4, 6>();
    multiply<3, 4, 7>();
  }
  store<0>(scores, kStride);
  store<1>(scores + kColumns, kStride);
  store<2>(scores + 2 * kColumns, kStride);
  store<3>(scores + 3 * kColumns, kStride);
}

/// acc[rows] += p[rows][64] . values
void AddValues(const Tile& t, int64_t row, const uint16_t* p) {
  using namespace amx;
  const int64_t stride = t.value_stride * 4, acc_stride = t.acc_stride * 4;
  float* acc = t.acc + row * t.acc_stride;
  const uint32_t* later = t.values + kTileRows * t.value_stride;
  load<4>(p, kTile * 2);
  load<5>(p + kTileValues, kTile * 2);
  for (int64_t c = 0; c < t.acc_stride; c += kColumns) {
    load<0>(acc + c, acc_stride);
    load<6>(t.values + c, stride);
    load<7>(later + c, stride);
    multiply<0, 4, 6>();
    multiply<0, 5, 7>();
    store<0>(acc + c, acc_stride);
  }
}

void ScaleRow(float* row, int64_t n, float factor) {
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < n; i += kLanes)
    _mm512_store_ps(row + i, _mm512_mul_ps(_mm512_load_ps(row + i), f));
}

/// Scores, probabilities and weighted values of up to 16 rows from `row` on, while they are in the
/// first-level cache.
void AttendBlock(const AttendRows& rows, int64_t row, int64_t num_rows, int64_t first, int64_t end,
                 const Tile& t) {
  alignas(64) float scores[amx::kTileRows * kTile];
  alignas(64) uint16_t p[amx::kTileRows * kTile];
  ScoreBlock(t, row, scores);
  for (int64_t r = 0; r < num_rows; ++r) {
    const float correction = SoftmaxRow(rows, row + r, VisibleKeys(rows, row + r, first, end), t,
                                        scores + r * kTile, p + r * kTile);
    if (correction != 1.0f) ScaleRow(t.acc + (row + r) * t.acc_stride, t.acc_stride, correction);
  }
  AddValues(t, row, p);
}

/// All 64 keys of a tile are multiplied with: where nobody sees one, its probability is 0, and its
/// value has to be a number.
void ClearUnseenValues(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  const int64_t before = unseen_keys(rows, first, end) / 2, pairs = (end - first + 1) / 2;
  std::fill_n(t.values, before * t.value_stride, 0u);
  std::fill_n(t.values + pairs * t.value_stride, (kTile / 2 - pairs) * t.value_stride, 0u);
}

void AttendAmx(const AttendRows& rows, AttendScratch& scratch) {
  const Tile t = MakeTile(rows, amx::kTileValues, scratch);
  int64_t configured = 0;
  for (int64_t first = rows.first_key; first < rows.end_key; first += kTile) {
    const int64_t end = std::min(first + kTile, rows.end_key);
    const RowRange range = rows_that_see(rows, first, end);
    if (range.begin == range.end) continue;
    LoadTile(rows, first, end, t);
    ClearUnseenValues(rows, first, end, t);
    for (int64_t row = range.begin; row < range.end; row += amx::kTileRows) {
      const int64_t num_rows = std::min<int64_t>(amx::kTileRows, range.end - row);
      if (num_rows != configured) Configure(num_rows);
      configured = num_rows;
      AttendBlock(rows, row, num_rows, first, end, t);
    }
  }
  amx::release();
  WriteRows(rows, t);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
#pragma GCC pop_options
#endif  // HWY_AVX3_DL
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

void attend_rows_amx(const AttendRows& rows, AttendScratch& scratch) {
#if HWY_TARGETS & HWY_AVX3_DL
  N_AVX3_DL::AttendAmx(rows, scratch);
#else
  (void)rows, (void)scratch;
  throw UnsupportedError("attention: this build has no code for AMX");
#endif
}

}  // namespace kv::cpu
#endif  // HWY_ONCE
