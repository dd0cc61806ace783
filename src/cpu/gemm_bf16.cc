#include "cpu/gemm_bf16.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cpu/attend_rows_bf16.h"
#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_bf16.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

// GCC leaves these loops rolled at -O2, and the accumulators in memory with them.
#define KV_UNROLL _Pragma("GCC unroll 12")

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;

/// One part of kRows rows and kVecs vectors of columns: pairs widened to F32, the first of each
/// pair added before the second.
template <int kRows, int kVecs>
HWY_INLINE void BlockF32(int64_t pairs, const uint16_t* x, int64_t ldx, const uint32_t* panel,
                         float* y, int64_t ldy) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<DF> sum[kRows][kVecs];
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < pairs; ++i) {
    KV_UNROLL
    for (int half = 0; half < 2; ++half) {
      hn::Vec<DF> w[kVecs];
      KV_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        const auto bits = hn::LoadU(du, panel + i * kPanelOutputs + v * lanes);
        w[v] = hn::BitCast(
            d, half == 0 ? hn::ShiftLeft<16>(bits) : hn::And(bits, hn::Set(du, 0xffff0000u)));
      }
      KV_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto a =
            hn::BitCast(d, hn::Set(du, static_cast<uint32_t>(x[r * ldx + 2 * i + half]) << 16));
        KV_UNROLL
        for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::MulAdd(a, w[v], sum[r][v]);
      }
    }
  }
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[r][v], d, y + r * ldy + v * lanes);
  }
}

/// kRows rows of the part's columns; results that y has no room for are left out.
template <int kRows>
void RowsF32(const GemmBf16& g, const GemmPart& part, int64_t row) {
  constexpr int kVecs = 2;  // of up to 16 lanes: no part has fewer columns
  const int64_t step = kVecs * static_cast<int64_t>(hn::Lanes(DF()));
  const auto* panel = reinterpret_cast<const uint32_t*>(g.panels + part.column / kPanelOutputs *
                                                                       panel_values(g.in));
  alignas(64) float buffer[kRows * kPanelOutputs];
  const int64_t room = g.out - part.column;
  const bool fits = room >= part.columns;
  float* y = fits ? g.y + row * g.out + part.column : buffer;
  const int64_t ldy = fits ? g.out : kPanelOutputs;
  for (int64_t c = 0; c < part.columns; c += step) {
    BlockF32<kRows, kVecs>(g.in / 2, g.x + row * g.in, g.in,
                           panel + part.column % kPanelOutputs + c, y + c, ldy);
  }
  for (int r = 0; r < kRows && !fits && room > 0; ++r)
    std::copy_n(buffer + r * kPanelOutputs, room, g.y + (row + r) * g.out + part.column);
}

void PartF32(const GemmBf16& g, const GemmPart& part) {
  int64_t row = part.first_row;
  const int64_t end = part.first_row + part.rows;
  // 8 x 2 sums and 2 x 2 weights fit the 32 registers of AVX-512, 4 x 2 and 2 the 16 of AVX2.
  constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
  for (; row + kRows <= end; row += kRows) RowsF32<kRows>(g, part, row);
  for (; row < end; ++row) RowsF32<1>(g, part, row);
}

}  // namespace

void GemmPartF32(const GemmBf16& g, const GemmPart& part) { PartF32(g, part); }

/// `steps` times 12 multiply-adds in registers; gives their FLOPs.
double SpinF32(int64_t steps) {
  const DF d;
  hn::Vec<DF> sum[12];
  KV_UNROLL
  for (auto& s : sum) s = hn::Zero(d);
  auto x = hn::Set(d, 0.5f);
  for (int64_t i = 0; i < steps; ++i) {
    KV_UNROLL
    for (auto& s : sum) s = hn::MulAdd(x, s, x);
  }
  for (const auto& s : sum) x = hn::Add(x, s);
  const auto lanes = static_cast<double>(hn::Lanes(d));
  return hn::GetLane(x) > 0 ? static_cast<double>(steps) * 12 * 2 * lanes : 0;
}

#if HWY_TARGET == HWY_AVX3_DL
// Highway 1.0 has no target with AVX512-BF16; this adds it to what AVX3_DL brings.
#pragma GCC push_options
#pragma GCC target("avx512bf16")
namespace {

/// kRows rows, kVecs vectors of 16 columns; few rows fetch the panel ahead of the loads.
template <int kRows, int kVecs>
void BlockDot(int64_t pairs, const uint16_t* x, int64_t ldx, const uint32_t* panel, float* y,
              int64_t ldy, int columns) {
  constexpr int64_t kAhead = 4096 / 4;  // of 4-byte pairs
  __m512 sum[kRows][kVecs];
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < pairs; ++i) {
    const uint32_t* at = panel + i * kPanelOutputs;
    __m512bh w[kVecs];
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      w[v] = (__m512bh)_mm512_loadu_si512(at + v * 16);
      _mm_prefetch(reinterpret_cast<const char*>(at + kAhead + v * 16), _MM_HINT_T0);
    }
    KV_UNROLL
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, x + r * ldx + 2 * i, sizeof pair);
      const auto a = (__m512bh)_mm512_set1_epi32(pair);
      KV_UNROLL
      for (int v = 0; v < kVecs; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], a, w[v]);
    }
  }
  KV_UNROLL
  for (int v = 0; v < kVecs; ++v) {
    const int left = columns - v * 16;
    const auto present = static_cast<__mmask16>(left >= 16  ? 0xffff
                                                : left <= 0 ? 0
                                                            : (1 << left) - 1);
    KV_UNROLL
    for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_ps(y + r * ldy + v * 16, present, sum[r][v]);
  }
}

template <int kRows>
void RowsDot(const GemmBf16& g, const GemmPart& part, int64_t row) {
  const auto* panel = reinterpret_cast<const uint32_t*>(g.panels + part.column / kPanelOutputs *
                                                                       panel_values(g.in)) +
                      part.column % kPanelOutputs;
  const auto columns = static_cast<int>(std::min(part.columns, g.out - part.column));
  const uint16_t* x = g.x + row * g.in;
  float* y = g.y + row * g.out + part.column;
  if (part.columns == 64) {
    BlockDot<kRows, 4>(g.in / 2, x, g.in, panel, y, g.out, columns);
  } else {
    BlockDot<kRows, 2>(g.in / 2, x, g.in, panel, y, g.out, columns);
  }
}

}  // namespace

void GemmPartDot(const GemmBf16& g, const GemmPart& part) {
  int64_t row = part.first_row;
  const int64_t end = part.first_row + part.rows;
  for (; row + 6 <= end; row += 6) RowsDot<6>(g, part, row);
  switch (end - row) {
    case 5:
      return RowsDot<5>(g, part, row);
    case 4:
      return RowsDot<4>(g, part, row);
    case 3:
      return RowsDot<3>(g, part, row);
    case 2:
      return RowsDot<2>(g, part, row);
    case 1:
      return RowsDot<1>(g, part, row);
    default:
      return;
  }
}

double SpinDot(int64_t steps) {
  __m512 sum[12];
  KV_UNROLL
  for (__m512& s : sum) s = _mm512_setzero_ps();
  const auto x = (__m512bh)_mm512_set1_epi16(0x3f00);  // 0.5
  for (int64_t i = 0; i < steps; ++i) {
    KV_UNROLL
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, x, x);
  }
  for (int i = 1; i < 12; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_reduce_add_ps(sum[0]) > 0 ? static_cast<double>(steps) * 12 * 64 : 0;
}
#pragma GCC pop_options
#endif  // HWY_AVX3_DL

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(GemmPartF32);
HWY_EXPORT(SpinF32);

namespace {

enum class Multiply { kAmx, kBf16Dot, kF32 };

Multiply multiply_now() {
  if (amx_allowed()) return Multiply::kAmx;
  return bf16_dot_pays() ? Multiply::kBf16Dot : Multiply::kF32;
}

void run_part(const GemmBf16& g, const GemmPart& part, Multiply how) {
  switch (how) {
    case Multiply::kAmx:
      return gemm_part_amx(g, part);
    case Multiply::kBf16Dot:
#if HWY_TARGETS & HWY_AVX3_DL
      return N_AVX3_DL::GemmPartDot(g, part);
#endif
    case Multiply::kF32:
      return HWY_DYNAMIC_DISPATCH(GemmPartF32)(g, part);
  }
}

double spin(int64_t steps, Multiply how) {
  switch (how) {
    case Multiply::kAmx:
      return spin_amx(steps);
    case Multiply::kBf16Dot:
#if HWY_TARGETS & HWY_AVX3_DL
      return N_AVX3_DL::SpinDot(steps);
#endif
    case Multiply::kF32:
      break;
  }
  return HWY_DYNAMIC_DISPATCH(SpinF32)(steps);
}

}  // namespace

double multiply_rate_gflops(int repetitions) {
  constexpr int64_t kSteps = 200'000;  // 2.4 million vector instructions, 0.8 million tiles
  const Multiply how = multiply_now();
  double best = 0;
  for (int r = 0; r < repetitions; ++r) {
    double flops = 0;
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel reduction(+ : flops)
    flops += spin(kSteps, how);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, flops / taken.count() / 1e9);
  }
  return best;
}

void pack_panel(const uint16_t* rows, int64_t count, int64_t in, uint16_t* panel) {
  std::memset(panel, 0, static_cast<size_t>(panel_values(in)) * sizeof *panel);
  constexpr int64_t kStep = 32;  // values of a cache line of each row
  for (int64_t first = 0; first < in; first += kStep) {
    const int64_t end = std::min(first + kStep, in);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = first; i < end; ++i)
        panel[(i / 2 * kPanelOutputs + r) * 2 + i % 2] = rows[r * in + i];
    }
  }
}

void gemm_bf16(const GemmBf16& g) {
  // 96 rows: 16 blocks of 6 or 3 of 32, so that a panel in the second-level cache is read for each
  // of them and the rows stay there with it.
  constexpr int64_t kRowsPerPart = 96;
  const Multiply how = multiply_now();
  const int64_t threads = omp_get_max_threads();
  const int64_t row_parts = (g.rows + kRowsPerPart - 1) / kRowsPerPart;
  const int64_t columns = num_panels(g.out) * row_parts < 4 * threads ? 32 : 64;
  const int64_t column_parts = (g.out + columns - 1) / columns, parts = column_parts * row_parts;
  // Neighbouring parts of a panel to one thread while there are enough of them.
  const int64_t at_once = std::max<int64_t>(1, parts / (8 * threads));
#pragma omp parallel for schedule(dynamic, at_once)
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = i % row_parts * kRowsPerPart;
    run_part(g, {first, std::min(kRowsPerPart, g.rows - first), i / row_parts * columns, columns},
             how);
  }
}

std::string_view gemm_bf16_kernel() {
  switch (multiply_now()) {
    case Multiply::kAmx:
      return kAmxName;
    case Multiply::kBf16Dot:
      return "bf16_dot";
    case Multiply::kF32:
      return "f32";
  }
  return "";
}

}  // namespace kv::cpu
#endif  // HWY_ONCE
