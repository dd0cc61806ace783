#include "ops/matmul.h"

#include <fmt/core.h>
#include <dnnl.hpp>

#include <algorithm>
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

// The rows that the packed format is chosen for: a middle size; the format serves every other
// number of rows.
constexpr int64_t kRowsToPackFor = 256;

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
  mutable std::unordered_map<int64_t, dnnl::matmul> by_rows;
};

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
      describe(kRowsToPackFor, in_features, out_features, any).weights_desc();
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
  PackedMatrix matrix;
  matrix.state_ = std::move(state);
  return matrix;
}

KernelUsed matmul(const PackedMatrix& weights, const TensorView& x, const TensorView& y) {
  const PackedMatrix::State& s = weights.state();
  Dim rows{"rows"}, in{"in_features", s.in}, out{"out_features", s.out};
  expect("matmul", "x", x, DType::kBF16, {&rows, &in});
  expect("matmul", "y", y, DType::kF32, {&rows, &out});
  if (!x.is_contiguous() || !y.is_contiguous())
    throw ShapeError("matmul: expected contiguous x and y");
  const KernelUsed used{has_bf16_matmul() ? "matmul_cpu/onednn/bf16" : "matmul_cpu/onednn/f32"};
  if (rows.size == 0) return used;
  auto found = s.by_rows.find(rows.size);
  if (found == s.by_rows.end()) {
    found =
        s.by_rows
            .emplace(rows.size, dnnl::matmul(describe(rows.size, s.in, s.out, s.packed.get_desc())))
            .first;
  }
  std::vector<float> wide;
  void* source = x.data;
  if (!has_bf16_matmul()) {
    wide.resize(static_cast<size_t>(rows.size * s.in));
    bf16_decode(x.as<const uint16_t>(), wide.data(), wide.size());
    source = wide.data();
  }
  memory mx({{rows.size, s.in}, operand_type(), memory::format_tag::ab}, cpu_engine(), source);
  memory my({{rows.size, s.out}, memory::data_type::f32, memory::format_tag::ab}, cpu_engine(),
            y.data);
  found->second.execute(cpu_stream(),
                        {{DNNL_ARG_SRC, mx}, {DNNL_ARG_WEIGHTS, s.packed}, {DNNL_ARG_DST, my}});
  cpu_stream().wait();
  return used;
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
