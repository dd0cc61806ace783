#include "cpu/attend_rows.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "kvscale/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attend_rows.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>

#include "numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kv::HWY_NAMESPACE::LoadBf16;
using kv::HWY_NAMESPACE::LoadE4m3;
using DF = hn::CappedTag<float, 16>;
constexpr int64_t kTile = kKeysPerTile;

// ---------------------------------------------------------------------------------------------------------------------
// C = A B on registers: kRows x kVecs accumulators, one broadcast of A and kVecs loads of B per
// step of k.

// GCC leaves these loops rolled at -O2, and the accumulators in memory with them.
#define KV_UNROLL _Pragma("GCC unroll 8")

template <int kRows, int kVecs>
HWY_INLINE void GemmBlock(int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                          float* c, int64_t ldc, bool accumulate) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<DF> sum[kRows][kVecs];
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = accumulate ? hn::LoadU(d, c + r * ldc + v * lanes) : hn::Zero(d);
    }
  }
  for (int64_t i = 0; i < k; ++i) {
    hn::Vec<DF> row_of_b[kVecs];
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) row_of_b[v] = hn::LoadU(d, b + i * ldb + v * lanes);
    KV_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, a[r * lda + i]);
      KV_UNROLL
      for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::MulAdd(x, row_of_b[v], sum[r][v]);
    }
  }
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[r][v], d, c + r * ldc + v * lanes);
  }
}

template <int kVecs>
HWY_INLINE void GemmRows(int64_t rows, int64_t k, const float* a, int64_t lda, const float* b,
                         int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6)
    GemmBlock<6, kVecs>(k, a + r * lda, lda, b, ldb, c + r * ldc, ldc, accumulate);
  const float* a_tail = a + r * lda;
  float* c_tail = c + r * ldc;
  switch (rows - r) {
    case 5:
      return GemmBlock<5, kVecs>(k, a_tail, lda, b, ldb, c_tail, ldc, accumulate);
    case 4:
      return GemmBlock<4, kVecs>(k, a_tail, lda, b, ldb, c_tail, ldc, accumulate);
    case 3:
      return GemmBlock<3, kVecs>(k, a_tail, lda, b, ldb, c_tail, ldc, accumulate);
    case 2:
      return GemmBlock<2, kVecs>(k, a_tail, lda, b, ldb, c_tail, ldc, accumulate);
    case 1:
      return GemmBlock<1, kVecs>(k, a_tail, lda, b, ldb, c_tail, ldc, accumulate);
    default:
      return;
  }
}

void Gemm(int64_t rows, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
          int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // 6 x 4 accumulators fill the 32 registers of AVX-512, 6 x 2 the 16 of AVX2.
  constexpr int kWide = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
  int64_t j = 0;
  for (; j + kWide * lanes <= n; j += kWide * lanes) {
    GemmRows<kWide>(rows, k, a, lda, b + j, ldb, c + j, ldc, accumulate);
  }
  for (; j < n; j += lanes) GemmRows<1>(rows, k, a, lda, b + j, ldb, c + j, ldc, accumulate);
}

// ---------------------------------------------------------------------------------------------------------------------
// Widening a tile of stored values.

/// out[i] = value i of `n` stored values that lie one after another.
void WidenRun(Format format, const uint8_t* from, int64_t n, float* out) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t bytes = value_bytes(format);
  const auto load = [&](const uint8_t* p) HWY_ATTR {
    return bytes == 1 ? LoadE4m3(d, p) : LoadBf16(d, reinterpret_cast<const uint16_t*>(p));
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load(from + i * bytes), d, out + i);
  const int64_t rest = std::min(n - i, lanes - 1);
  if (rest <= 0) return;
  alignas(64) uint8_t padded[32] = {};  // a vector at the end of a page must not read beyond it
  alignas(64) float wide[16];
  std::memcpy(padded, from + i * bytes, static_cast<size_t>(rest * bytes));
  hn::StoreU(load(padded), d, wide);
  std::memcpy(out + i, wide, static_cast<size_t>(rest) * sizeof(float));
}

/// As WidenRun, for values `stride` bytes apart (vLLM's order read on a CPU).
void WidenStrided(Format format, const uint8_t* from, int64_t stride, int64_t n, float* out) {
  uint8_t packed[2 * 512];
  const int64_t bytes = value_bytes(format);
  for (int64_t begin = 0; begin < n; begin += 512) {
    const int64_t count = std::min<int64_t>(512, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(packed + i * bytes, from + (begin + i) * stride, static_cast<size_t>(bytes));
    }
    WidenRun(format, packed, count, out + begin);
  }
}

void Widen(Format format, const uint8_t* from, int64_t stride, int64_t n, float* out) {
  if (stride == value_bytes(format)) return WidenRun(format, from, n, out);
  WidenStrided(format, from, stride, n, out);
}

/// Calls fn(page, slot, offset in the tile, count) for each piece of the tile [first, end) that
/// lies in one block.
template <class Fn>
HWY_INLINE void ForEachPiece(const AttendRows& rows, int64_t first, int64_t end, const Fn& fn) {
  const int64_t block_size = rows.cache->page.block_size;
  for (int64_t key = first; key < end;) {
    const int64_t slot = key % block_size;
    const int64_t count = std::min(block_size - slot, end - key);
    fn(rows.cache->block(rows.blocks[key / block_size]), slot, key - first, count);
    key += count;
  }
}

/// keys[d][64]; columns without a key are 0.
void LoadKeys(const AttendRows& rows, int64_t first, int64_t end, float* keys) {
  const SideLayout& side = rows.cache->page.side(Side::kK);
  const int64_t dim = rows.cache->page.head_dim;
  if (end - first < kTile) std::memset(keys, 0, static_cast<size_t>(dim * kTile) * sizeof(float));
  ForEachPiece(rows, first, end, [&](const uint8_t* page, int64_t slot, int64_t at, int64_t count) {
    for (int64_t d = 0; d < dim; ++d) {
      Widen(side.format, page + side.byte(rows.kv_head, slot, d), side.slot_stride, count,
            keys + d * kTile + at);
    }
  });
}

/// values[64][padded_dim]; rows without a key and columns beyond head_dim are 0.
void LoadValues(const AttendRows& rows, int64_t first, int64_t end, int64_t padded_dim,
                float* values) {
  const SideLayout& side = rows.cache->page.side(Side::kV);
  const int64_t dim = rows.cache->page.head_dim;
  if (end - first < kTile || padded_dim != dim) {
    std::memset(values, 0, static_cast<size_t>(padded_dim * kTile) * sizeof(float));
  }
  ForEachPiece(rows, first, end, [&](const uint8_t* page, int64_t slot, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      Widen(side.format, page + side.byte(rows.kv_head, slot + i, 0), side.dim_stride, dim,
            values + (at + i) * padded_dim);
    }
  });
}

/// scales[64]: the inline scales of the tile times `factor`, or `factor` where the format has none.
void LoadScales(const AttendRows& rows, Side which, int64_t first, int64_t end, float factor,
                float* scales) {
  const SideLayout& side = rows.cache->page.side(which);
  std::fill_n(scales, kTile, factor);
  if (!has_inline_scales(side.format)) return;
  ForEachPiece(rows, first, end, [&](const uint8_t* page, int64_t slot, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      float scale;
      std::memcpy(&scale, page + side.scale_byte(rows.kv_head, slot + i), sizeof scale);
      scales[at + i] = scale * factor;
    }
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// The online softmax of one tile.

/// Scores [64] of one row become its probabilities times the inline V scales; updates the row's
/// largest score and sum and gives what its accumulator has to be multiplied by.
float SoftmaxRow(const AttendRows& rows, int64_t row, int64_t first, int64_t end,
                 const float* key_scales, const float* value_scales, float* scores) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  const int64_t last = std::min(end - 1, rows.positions[row]) - first;
  const int64_t begin = rows.window > 0 ? rows.positions[row] - rows.window + 1 - first : 0;
  const auto cap = hn::Set(d, rows.soft_cap);
  auto largest = hn::Set(d, rows.largest[row]);
  for (int64_t j = 0; j < kTile; j += lanes) {
    auto s = hn::Mul(hn::LoadU(d, scores + j), hn::LoadU(d, key_scales + j));
    if (rows.soft_cap > 0) s = hn::Mul(cap, hn::Tanh(d, hn::Div(s, cap)));
    const auto key = hn::Iota(d, static_cast<float>(j));
    s = hn::IfThenElse(hn::Gt(key, hn::Set(d, static_cast<float>(last))), hidden, s);
    s = hn::IfThenElse(hn::Lt(key, hn::Set(d, static_cast<float>(begin))), hidden, s);
    hn::StoreU(s, d, scores + j);
    largest = hn::Max(largest, s);
  }
  const float before = rows.largest[row];
  const float now = hn::GetLane(hn::MaxOfLanes(d, largest));
  const auto shift = hn::Set(d, now);
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < kTile; j += lanes) {
    const auto x = hn::Sub(hn::LoadU(d, scores + j), shift);
    auto p = hn::Exp(d, x);
    p = hn::IfThenElse(hn::IsNaN(x), x, p);  // Exp gives 0 for NaN: a NaN key must not vanish
    sum = hn::Add(sum, p);
    hn::StoreU(hn::Mul(p, hn::LoadU(d, value_scales + j)), d, scores + j);
  }
  const float correction = std::exp(before - now);
  rows.largest[row] = now;
  rows.sum[row] = rows.sum[row] * correction + hn::GetLane(hn::SumOfLanes(d, sum));
  return correction;
}

void ScaleRow(float* row, int64_t n, float factor) {
  const DF d;
  const auto f = hn::Set(d, factor);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), f), d, row + i);
  }
}

struct Tile {
  float* keys;          // [head_dim][64]
  float* values;        // [64][padded_dim]
  float* scores;        // [num_rows][64]
  float* acc;           // [num_rows][padded_dim]
  float* key_scales;    // [64]
  float* value_scales;  // [64]
  int64_t padded_dim;
};

/// Rows whose last visible key lies before the tile, or whose window begins after it, would only
/// add zeros.
void AttendTile(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  int64_t r0 = 0, r1 = rows.num_rows;
  while (r0 < r1 && rows.positions[r0] < first) ++r0;
  while (rows.window > 0 && r1 > r0 && rows.positions[r1 - 1] - rows.window + 1 >= end) --r1;
  if (r0 == r1) return;
  const int64_t dim = rows.cache->page.head_dim, n = r1 - r0;
  LoadKeys(rows, first, end, t.keys);
  LoadValues(rows, first, end, t.padded_dim, t.values);
  LoadScales(rows, Side::kK, first, end, rows.score_scale, t.key_scales);
  LoadScales(rows, Side::kV, first, end, 1.0f, t.value_scales);
  Gemm(n, kTile, dim, rows.q + r0 * dim, dim, t.keys, kTile, t.scores, kTile, false);
  for (int64_t r = 0; r < n; ++r) {
    const float correction =
        SoftmaxRow(rows, r0 + r, first, end, t.key_scales, t.value_scales, t.scores + r * kTile);
    if (correction != 1.0f) ScaleRow(t.acc + (r0 + r) * t.padded_dim, t.padded_dim, correction);
  }
  Gemm(n, t.padded_dim, kTile, t.scores, kTile, t.values, t.padded_dim, t.acc + r0 * t.padded_dim,
       t.padded_dim, true);
}

void Attend(const AttendRows& rows, AttendScratch& scratch) {
  const int64_t dim = rows.cache->page.head_dim;
  const int64_t padded = (dim + 15) / 16 * 16;
  float* at = scratch.get(kTile * (dim + padded + rows.num_rows + 2) + rows.num_rows * padded);
  Tile t{};
  t.padded_dim = padded;
  t.keys = at;
  t.values = t.keys + dim * kTile;
  t.scores = t.values + padded * kTile;
  t.acc = t.scores + rows.num_rows * kTile;
  t.key_scales = t.acc + rows.num_rows * padded;
  t.value_scales = t.key_scales + kTile;
  std::memset(t.acc, 0, static_cast<size_t>(rows.num_rows * padded) * sizeof(float));
  std::fill_n(rows.largest, rows.num_rows, -FLT_MAX);
  std::fill_n(rows.sum, rows.num_rows, 0.0f);
  for (int64_t first = rows.first_key; first < rows.end_key; first += kTile) {
    AttendTile(rows, first, std::min(first + kTile, rows.end_key), t);
  }
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    std::memcpy(rows.out + r * dim, t.acc + r * padded, static_cast<size_t>(dim) * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(Attend);
HWY_EXPORT(Gemm);

float* AttendScratch::get(int64_t floats) {
  if (floats > size_) {
    std::free(data_);
    size_ = (floats + 1023) / 1024 * 1024;
    data_ =
        static_cast<float*>(std::aligned_alloc(4096, static_cast<size_t>(size_) * sizeof(float)));
    if (data_ == nullptr) throw Error("attention: out of memory for scratch");
  }
  return data_;
}

AttendScratch::~AttendScratch() { std::free(data_); }

void attend_rows(const AttendRows& rows, AttendScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(Attend)(rows, scratch);
}

void gemm_f32(int64_t rows, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
              int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  if (n % 16 != 0) throw ShapeError("gemm_f32: n must be a multiple of 16");
  HWY_DYNAMIC_DISPATCH(Gemm)(rows, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void finish_rows(std::span<const RowsPart> parts, int64_t num_rows, int64_t head_dim,
                 float value_scale, float* out) {
  for (int64_t r = 0; r < num_rows; ++r) {
    float largest = -FLT_MAX;
    for (const RowsPart& part : parts) largest = std::max(largest, part.largest[r]);
    float sum = 0;
    float* row = out + r * head_dim;
    std::fill_n(row, head_dim, 0.0f);
    for (const RowsPart& part : parts) {
      const float weight = parts.size() == 1 ? 1.0f : std::exp(part.largest[r] - largest);
      sum += weight * part.sum[r];
      for (int64_t d = 0; d < head_dim; ++d) row[d] += weight * part.values[r * head_dim + d];
    }
    const float factor = value_scale / sum;
    for (int64_t d = 0; d < head_dim; ++d) row[d] *= factor;
  }
}

}  // namespace kv::cpu
#endif  // HWY_ONCE
