#include "cpu/attend_rows.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "cpu/attend_rows_amx.h"
#include "cpu/attend_rows_bf16.h"
#include "cpu/key_tile.h"
#include "kvscale/error.h"
#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attend_rows.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>

#include "cpu/exp2-inl.h"
#include "cpu/round_weight-inl.h"
#include "numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kv::HWY_NAMESPACE::LoadBf16;
using kv::HWY_NAMESPACE::LoadE4m3;
using DF = hn::CappedTag<float, 16>;
constexpr int64_t kTile = kKeysPerTile;
constexpr float kLog2E = 1.442695041f;

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

/// Row i of `num_rows` stored ones to out + i * stride; columns from n on are 0.
void WidenRows(Format format, StoredRows from, int64_t num_rows, int64_t n, int64_t stride,
               float* out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    WidenRun(format, from.data + row * from.stride, n, out + row * stride);
    std::fill_n(out + row * stride + n, stride - n, 0.0f);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The online softmax of one tile.

/// The scores of `lanes` keys from key j of the tile on, in powers of two; -infinity for keys
/// outside [begin, last].
HWY_INLINE hn::Vec<DF> Scores(const AttendRows& rows, const float* scores, const float* key_scales,
                              int64_t j, int64_t begin, int64_t last) {
  const DF d;
  auto s = hn::Mul(hn::LoadU(d, scores + j), hn::LoadU(d, key_scales + j));
  if (rows.soft_cap > 0) {
    const auto cap = hn::Set(d, rows.soft_cap);
    s = hn::Mul(hn::Mul(cap, hn::Tanh(d, hn::Div(s, cap))), hn::Set(d, kLog2E));
  }
  if (begin <= 0 && last >= kTile - 1) return s;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto key = hn::Iota(d, static_cast<float>(j));
  s = hn::IfThenElse(hn::Gt(key, hn::Set(d, static_cast<float>(last))), hidden, s);
  return hn::IfThenElse(hn::Lt(key, hn::Set(d, static_cast<float>(begin))), hidden, s);
}

/// Scores [64] of one row become its probabilities times the inline V scales; updates the row's
/// largest score and sum and gives what its accumulator has to be multiplied by.
float SoftmaxRow(const AttendRows& rows, int64_t row, int64_t first, int64_t end,
                 const float* key_scales, const float* value_scales, float* scores) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = std::min(end - 1, rows.positions[row]) - first;
  const int64_t begin = rows.window > 0 ? rows.positions[row] - rows.window + 1 - first : 0;
  const float before = rows.largest[row];
  auto largest = hn::Set(d, before);
  for (int64_t j = 0; j < kTile; j += lanes) {
    const auto s = Scores(rows, scores, key_scales, j, begin, last);
    hn::StoreU(s, d, scores + j);
    largest = hn::Max(largest, s);
  }
  const float now = hn::GetLane(hn::MaxOfLanes(d, largest));
  const auto shift = hn::Set(d, now);
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < kTile; j += lanes) {
    const auto p = Exp2(d, hn::Sub(hn::LoadU(d, scores + j), shift));
    sum = hn::Add(sum, p);
    const auto weight = rows.fp8_weights ? RoundWeight(d, p) : p;
    hn::StoreU(hn::Mul(weight, hn::LoadU(d, value_scales + j)), d, scores + j);
  }
  const float correction = now == before ? 1.0f : std::exp2(before - now);
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
  float* q;             // [num_rows][head_dim]
  float* keys;          // [head_dim][64]
  float* values;        // [64][padded_dim]
  float* scores;        // [num_rows][64]
  float* acc;           // [num_rows][padded_dim]
  float* key_scales;    // [64]
  float* value_scales;  // [64]
  uint8_t* copy;        // a tile of stored bytes that do not lie as they are needed
  int64_t padded_dim;
  int64_t value_stride;
};

/// A tile of latents [64][value_stride]: whole vectors, of which V is the beginning.
void WidenLatents(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  const DF d;
  const PageLayout& page = rows.cache->page;
  const SideLayout& side = page.side(Side::kK);
  const auto widen = [&](const uint8_t* block, int64_t slot, int64_t at, int64_t count) HWY_ATTR {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* cell = block + side.byte(0, slot + i, 0);
      float* out = t.values + (at + i) * t.value_stride;
      if (!page.has_tiles()) {
        WidenRun(side.format, cell, page.head_dim, out);
        continue;
      }
      WidenRun(side.format, cell, page.value_dim, out);
      for (int64_t c = 0; c < page.value_dim; c += static_cast<int64_t>(hn::Lanes(d))) {
        float scale;
        std::memcpy(&scale, block + side.scale_byte(0, slot + i) + c / kLatentTile * 4,
                    sizeof scale);
        hn::StoreU(hn::Mul(hn::LoadU(d, out + c), hn::Set(d, scale)), d, out + c);
      }
      WidenRun(Format::kBf16, cell + page.bf16_base, page.head_dim - page.value_dim,
               out + page.value_dim);
    }
  };
  for_each_piece(rows, first, end, widen);
  std::fill_n(t.values, unseen_keys(rows, first, end) * t.value_stride, 0.0f);
  std::fill_n(t.values + (end - first) * t.value_stride, (kTile - (end - first)) * t.value_stride,
              0.0f);
}

/// The tile's keys [head_dim][64] from its latents.
void TransposeLatents(int64_t dim, const Tile& t) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto index = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(t.value_stride)));
  for (int64_t c = 0; c < dim; ++c) {
    for (int64_t j = 0; j < kTile; j += lanes) {
      hn::StoreU(hn::GatherIndex(d, t.values + j * t.value_stride + c, index), d,
                 t.keys + c * kTile + j);
    }
  }
}

void WidenKeysAndValues(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  const PageLayout& page = rows.cache->page;
  WidenRows(page.side(Side::kK).format, stored_keys(rows, first, end, t.copy), page.head_dim, kTile,
            kTile, t.keys);
  WidenRows(page.side(Side::kV).format, stored_values(rows, first, end, t.copy), end - first,
            page.head_dim, t.value_stride, t.values);
  std::fill_n(t.values, unseen_keys(rows, first, end) * t.value_stride, 0.0f);
}

void AttendTile(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  const RowRange range = rows_that_see(rows, first, end);
  if (range.begin == range.end) return;
  const PageLayout& page = rows.cache->page;
  const int64_t dim = page.head_dim, r0 = range.begin, n = range.end - range.begin;
  const float score_factor = rows.score_scale * (rows.soft_cap > 0 ? 1.0f : kLog2E);
  if (page.holds_latents) {
    WidenLatents(rows, first, end, t);
    TransposeLatents(dim, t);
    std::fill_n(t.key_scales, kTile, score_factor);
    std::fill_n(t.value_scales, kTile, 1.0f);
  } else {
    WidenKeysAndValues(rows, first, end, t);
    load_scales(rows, Side::kK, first, end, score_factor, t.key_scales);
    load_scales(rows, Side::kV, first, end, 1.0f, t.value_scales);
  }
  Gemm(n, kTile, dim, t.q + r0 * dim, dim, t.keys, kTile, t.scores, kTile, false);
  for (int64_t r = 0; r < n; ++r) {
    const float correction =
        SoftmaxRow(rows, r0 + r, first, end, t.key_scales, t.value_scales, t.scores + r * kTile);
    if (correction != 1.0f) ScaleRow(t.acc + (r0 + r) * t.padded_dim, t.padded_dim, correction);
  }
  Gemm(n, t.padded_dim, end - first, t.scores, kTile, t.values, t.value_stride,
       t.acc + r0 * t.padded_dim, t.padded_dim, true);
}

void Attend(const AttendRows& rows, AttendScratch& scratch) {
  const PageLayout& page = rows.cache->page;
  const auto padded_to_16 = [](int64_t n) { return (n + 15) / 16 * 16; };
  const int64_t dim = page.head_dim, padded = padded_to_16(page.value_dim);
  const int64_t stride = page.holds_latents ? padded_to_16(dim) : padded;
  float* at = scratch.get(kTile * (dim + stride + rows.num_rows + 2) +
                          rows.num_rows * (padded + dim) + kTile * dim / 2);
  Tile t{};
  t.padded_dim = padded;
  t.value_stride = stride;
  t.keys = at;
  t.values = t.keys + dim * kTile;
  t.scores = t.values + stride * kTile;
  t.acc = t.scores + rows.num_rows * kTile;
  t.key_scales = t.acc + rows.num_rows * padded;
  t.value_scales = t.key_scales + kTile;
  t.q = t.value_scales + kTile;
  t.copy = reinterpret_cast<uint8_t*>(t.q + rows.num_rows * dim);
  std::memset(t.acc, 0, static_cast<size_t>(rows.num_rows * padded) * sizeof(float));
  std::fill_n(rows.largest, rows.num_rows, -FLT_MAX);
  std::fill_n(rows.sum, rows.num_rows, 0.0f);
  WidenRun(Format::kBf16, reinterpret_cast<const uint8_t*>(rows.q), rows.num_rows * dim, t.q);
  for (int64_t first = rows.first_key; first < rows.end_key; first += kTile) {
    AttendTile(rows, first, std::min(first + kTile, rows.end_key), t);
  }
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    std::memcpy(rows.out + r * page.value_dim, t.acc + r * padded,
                static_cast<size_t>(page.value_dim) * sizeof(float));
  }
}

void FinishRows(std::span<const RowsPart> parts, int64_t num_rows, int64_t head_dim,
                float value_scale, const float* sinks, float* out) {
  const bool is_alone = parts.size() == 1 && sinks == nullptr;
  for (int64_t r = 0; r < num_rows; ++r) {
    float largest = -FLT_MAX, sum = 0;
    for (const RowsPart& part : parts) largest = std::max(largest, part.largest[r]);
    if (sinks != nullptr) {
      largest = std::max(largest, sinks[r]);
      sum = std::exp2(sinks[r] - largest);
    }
    float* row = out + r * head_dim;
    std::fill_n(row, head_dim, 0.0f);
    for (const RowsPart& part : parts) {
      const float weight = is_alone ? 1.0f : std::exp2(part.largest[r] - largest);
      sum += weight * part.sum[r];
      const float* values = part.values + r * head_dim;
#pragma omp simd
      for (int64_t d = 0; d < head_dim; ++d) row[d] += weight * values[d];
    }
    const float factor = value_scale / sum;
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) row[d] *= factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(Attend);
HWY_EXPORT(FinishRows);
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
  if (!rows.cache->page.holds_latents) {
    if (amx_allowed()) return attend_rows_amx(rows, scratch);
    if (bf16_dot_pays()) return attend_rows_bf16(rows, scratch);
  }
  HWY_DYNAMIC_DISPATCH(Attend)(rows, scratch);
}

std::string_view attend_rows_kernel(const PageLayout& page) {
  if (page.holds_latents) return "f32";
  return amx_allowed() ? kAmxName : bf16_dot_pays() ? "bf16_dot" : "f32";
}

void gemm_f32(int64_t rows, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
              int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  if (n % 16 != 0) throw ShapeError("gemm_f32: n must be a multiple of 16");
  HWY_DYNAMIC_DISPATCH(Gemm)(rows, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void finish_rows(std::span<const RowsPart> parts, int64_t num_rows, int64_t head_dim,
                 float value_scale, const float* sinks, float* out) {
  HWY_DYNAMIC_DISPATCH(FinishRows)(parts, num_rows, head_dim, value_scale, sinks, out);
}

}  // namespace kv::cpu
#endif  // HWY_ONCE
