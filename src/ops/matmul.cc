#include "ops/matmul.h"

#include <fmt/core.h>
#include <dnnl.hpp>

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/bulk.h"
#include "tensor/shape.h"

namespace kv {
namespace {

using dnnl::memory;

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& cpu_stream() {
  static dnnl::stream stream(cpu_engine());
  return stream;
}

/// oneDNN multiplies BF16 from AVX-512 on; below it, F32.
bool has_bf16_matmul() {
  static const bool has = [] {
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
    return (isa & needed) == needed;
  }();
  return has;
}

memory::data_type operand_type() {
  return has_bf16_matmul() ? memory::data_type::bf16 : memory::data_type::f32;
}

// Row counts that primitives are made for. The last one is the canonical one: the packed format is
// chosen for it, longer products are cut into pieces of it, and the others must give its bits.
constexpr std::array<int64_t, 12> kRowCounts = {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256};
constexpr int64_t kCanonicalRows = kRowCounts.back();

dnnl::matmul::primitive_desc describe(int64_t rows, int64_t in, int64_t out,
                                      const memory::desc& weights) {
  const memory::desc x({rows, in}, operand_type(), memory::format_tag::ab);
  const memory::desc y({rows, out}, memory::data_type::f32, memory::format_tag::ab);
  return {{x, weights, y}, cpu_engine()};
}

}  // namespace

struct PackedMatrix::State {
  int64_t in = 0, out = 0;
  memory packed;
  std::vector<int64_t> row_counts;  // ascending, ends with the canonical one
  mutable std::unordered_map<int64_t, dnnl::matmul> by_rows;

  /// x [rows, in] in operand_type(), y [rows, out]; rows is one of kRowCounts.
  void run(int64_t rows, const void* x, float* y) const {
    auto found = by_rows.find(rows);
    if (found == by_rows.end()) {
      const auto desc = describe(rows, in, out, packed.get_desc());
      found = by_rows.emplace(rows, dnnl::matmul(desc)).first;
    }
    memory mx({{rows, in}, operand_type(), memory::format_tag::ab}, cpu_engine(),
              const_cast<void*>(x));
    memory my({{rows, out}, memory::data_type::f32, memory::format_tag::ab}, cpu_engine(), y);
    found->second.execute(cpu_stream(),
                          {{DNNL_ARG_SRC, mx}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, my}});
    cpu_stream().wait();
  }

  /// The smallest usable row count that `rows` <= kCanonicalRows fit into.
  int64_t row_count_for(int64_t rows) const { return *std::ranges::lower_bound(row_counts, rows); }
};

namespace {

/// Numbers whose sums depend on the order of their terms, in operand_type(), from a fixed seed.
std::vector<uint8_t> probe_rows(int64_t in) {
  std::vector<float> wide(static_cast<size_t>(kCanonicalRows * in));
  uint32_t state = 1;
  for (float& x : wide) {
    state = state * 1664525u + 1013904223u;  // a linear congruence: any spread of values will do
    x = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  std::vector<uint8_t> out(wide.size() * (has_bf16_matmul() ? 2 : 4));
  if (has_bf16_matmul()) {
    bf16_encode(wide.data(), reinterpret_cast<uint16_t*>(out.data()), wide.size());
  } else {
    std::memcpy(out.data(), wide.data(), out.size());
  }
  return out;
}

/// The row counts whose kernels add in the canonical kernel's order, found by comparing bits. What
/// kernel runs depends on the sizes and the threads alone, so a shape is probed once.
std::vector<int64_t> find_row_counts(const PackedMatrix::State& state) {
  static std::map<std::tuple<int64_t, int64_t, int>, std::vector<int64_t>> known;
  std::vector<int64_t>& counts = known[{state.in, state.out, omp_get_max_threads()}];
  if (!counts.empty()) return counts;
  const std::vector<uint8_t> x = probe_rows(state.in);
  std::vector<float> expected(static_cast<size_t>(kCanonicalRows * state.out)), y(expected.size());
  state.run(kCanonicalRows, x.data(), expected.data());
  for (const int64_t rows : kRowCounts) {
    state.run(rows, x.data(), y.data());
    const auto bytes = static_cast<size_t>(rows * state.out) * sizeof(float);
    if (std::memcmp(y.data(), expected.data(), bytes) == 0) counts.push_back(rows);
  }
  return counts;
}

}  // namespace

int64_t PackedMatrix::out_features() const { return state_->out; }
int64_t PackedMatrix::in_features() const { return state_->in; }
int64_t PackedMatrix::packed_bytes() const {
  return static_cast<int64_t>(state_->packed.get_desc().get_size());
}

PackedMatrix PackedMatrix::pack(int64_t out_features, int64_t in_features, const RowReader& rows) {
  if (out_features <= 0 || in_features <= 0) {
    throw ShapeError(
        fmt::format("matmul: expected sizes > 0, found [{}, {}]", out_features, in_features));
  }
  auto state = std::make_shared<State>();
  state->in = in_features;
  state->out = out_features;
  const auto values = static_cast<size_t>(out_features * in_features);
  std::vector<uint16_t> plain(values);
  const int64_t step =
      std::max<int64_t>(1, (1 << 18) / in_features);  // 512 KB: a piece of work for one thread
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t first = 0; first < out_features; first += step) {
    try {
      rows(first, std::min(step, out_features - first), plain.data() + first * in_features);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  const memory::desc any({in_features, out_features}, operand_type(), memory::format_tag::any);
  const memory::desc packed =
      describe(kCanonicalRows, in_features, out_features, any).weights_desc();
  state->packed = memory(packed, cpu_engine());
  std::vector<float> wide;
  void* source = plain.data();
  if (!has_bf16_matmul()) {
    wide.resize(values);
    bf16_decode(plain.data(), wide.data(), values);
    source = wide.data();
  }
  memory from({{in_features, out_features}, operand_type(), memory::format_tag::ba}, cpu_engine(),
              source);
  dnnl::reorder(from, state->packed).execute(cpu_stream(), from, state->packed);
  cpu_stream().wait();
  state->row_counts = find_row_counts(*state);
  PackedMatrix matrix;
  matrix.state_ = std::move(state);
  return matrix;
}

int64_t PackedMatrix::padded_rows(int64_t rows) const {
  const int64_t whole = rows / kCanonicalRows * kCanonicalRows;
  return rows == whole ? whole : whole + state_->row_count_for(rows - whole);
}

KernelUsed matmul(const PackedMatrix& weights, const TensorView& x, const TensorView& y) {
  const PackedMatrix::State& s = weights.state();
  Dim rows{"rows"}, in{"in_features", s.in}, room{"rows of y"}, out{"out_features", s.out};
  expect("matmul", "x", x, DType::kBF16, {&rows, &in});
  expect("matmul", "y", y, DType::kF32, {&room, &out});
  if (!x.is_contiguous() || !y.is_contiguous() || room.size < rows.size) {
    throw ShapeError(
        fmt::format("matmul: expected contiguous x and y with at least {} rows, found {}",
                    rows.size, shape_text(y)));
  }
  std::vector<float> wide;  // operands on a CPU without BF16 products
  if (!has_bf16_matmul()) {
    wide.resize(static_cast<size_t>(rows.size * s.in));
    bf16_decode(x.as<const uint16_t>(), wide.data(), wide.size());
  }
  const auto* operands =
      has_bf16_matmul() ? x.as<const uint8_t>() : reinterpret_cast<const uint8_t*>(wide.data());
  const int64_t row_bytes = s.in * (has_bf16_matmul() ? 2 : 4);
  std::vector<uint8_t> padded;
  std::vector<float> scratch;
  for (int64_t first = 0; first < rows.size; first += kCanonicalRows) {
    const int64_t count = std::min(kCanonicalRows, rows.size - first), run = s.row_count_for(count);
    const void* piece = operands + first * row_bytes;
    float* result = y.as<float>() + first * s.out;
    if (run > count) {  // what the padding holds changes no other row
      padded.assign(static_cast<size_t>(run * row_bytes), 0);
      std::memcpy(padded.data(), piece, static_cast<size_t>(count * row_bytes));
      piece = padded.data();
    }
    if (first + run <= room.size) {
      s.run(run, piece, result);
      continue;
    }
    scratch.resize(static_cast<size_t>(run * s.out));
    s.run(run, piece, scratch.data());
    std::memcpy(result, scratch.data(), static_cast<size_t>(count * s.out) * sizeof(float));
  }
  return {has_bf16_matmul() ? "matmul_cpu/onednn/bf16" : "matmul_cpu/onednn/f32"};
}

void matmul_ref(const TensorView& weights, const TensorView& x, const TensorView& y) {
  Dim rows{"rows"}, in{"in_features"}, out{"out_features"};
  expect("matmul", "weights", weights, DType::kBF16, {&out, &in});
  expect("matmul", "x", x, DType::kBF16, {&rows, &in});
  expect("matmul", "y", y, DType::kF32, {&rows, &out});
  for (int64_t r = 0; r < rows.size; ++r) {
    for (int64_t o = 0; o < out.size; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < in.size; ++i) {
        sum += static_cast<double>(bf16::decode(x.as<const uint16_t>()[r * in.size + i])) *
               bf16::decode(weights.as<const uint16_t>()[o * in.size + i]);
      }
      y.as<float>()[r * out.size + o] = static_cast<float>(sum);
    }
  }
}

}  // namespace kv
