#include "ops/matmul.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "cpu/gemm_bf16.h"
#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/simd.h"
#include "tensor/shape.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace kv {

struct PackedMatrix::State {
  int64_t in = 0, out = 0;
  std::shared_ptr<uint16_t> panels;

  int64_t bytes() const { return cpu::num_panels(out) * cpu::panel_values(in) * 2; }
};

int64_t PackedMatrix::out_features() const { return state_->out; }
int64_t PackedMatrix::in_features() const { return state_->in; }
int64_t PackedMatrix::packed_bytes() const { return state_->bytes(); }

namespace {

std::shared_ptr<uint16_t> allocate(int64_t bytes) {
  constexpr size_t kHugePage = size_t{1}
                               << 21;  // fewer misses of the TLB, where the system obliges
  const size_t alignment = static_cast<size_t>(bytes) >= kHugePage ? kHugePage : 64;
  const size_t size = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
  auto* data = static_cast<uint16_t*>(std::aligned_alloc(alignment, size));
  if (data == nullptr) throw Error(fmt::format("matmul: out of memory for {} bytes", size));
#ifdef __linux__
  if (alignment == kHugePage) madvise(data, size, MADV_HUGEPAGE);  // only advice: may be refused
#endif
  return {data, [](uint16_t* p) { std::free(p); }};
}

}  // namespace

PackedMatrix PackedMatrix::pack(int64_t out_features, int64_t in_features, const RowReader& rows) {
  if (out_features <= 0 || in_features <= 0) {
    throw ShapeError(
        fmt::format("matmul: expected sizes > 0, found [{}, {}]", out_features, in_features));
  }
  auto state = std::make_shared<State>();
  state->in = in_features;
  state->out = out_features;
  state->panels = allocate(state->bytes());
  std::exception_ptr failure;
#pragma omp parallel
  {
    std::vector<uint16_t> plain;
#pragma omp for schedule(dynamic, 1)
    for (int64_t panel = 0; panel < cpu::num_panels(out_features); ++panel) {
      try {
        plain.resize(static_cast<size_t>(cpu::kPanelOutputs * in_features));
        const int64_t first = panel * cpu::kPanelOutputs;
        const int64_t count = std::min(cpu::kPanelOutputs, out_features - first);
        rows(first, count, plain.data());
        cpu::pack_panel(plain.data(), count, in_features,
                        state->panels.get() + panel * cpu::panel_values(in_features));
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
  PackedMatrix matrix;
  matrix.state_ = std::move(state);
  return matrix;
}

KernelUsed matmul(const PackedMatrix& weights, const TensorView& x, const TensorView& y) {
  const PackedMatrix::State& s = weights.state();
  Dim rows{"rows"}, in{"in_features", s.in}, out{"out_features", s.out};
  expect("matmul", "x", x, DType::kBF16, {&rows, &in});
  expect("matmul", "y", y, DType::kF32, {&rows, &out});
  if (!x.is_contiguous() || !y.is_contiguous()) {
    throw ShapeError(fmt::format("matmul: expected contiguous x and y, found {} and {}",
                                 shape_text(x), shape_text(y)));
  }
  cpu::GemmBf16 g{rows.size,      cpu::padded_inputs(s.in),
                  s.out,          x.as<const uint16_t>(),
                  s.panels.get(), y.as<float>()};
  std::vector<uint16_t> padded;
  if (g.in != s.in) {
    padded.resize(static_cast<size_t>(rows.size * g.in));
    for (int64_t r = 0; r < rows.size; ++r)
      std::copy_n(g.x + r * s.in, s.in, padded.data() + r * g.in);
    g.x = padded.data();
  }
  cpu::gemm_bf16(g);
  return {fmt::format("matmul_cpu/{}/{}", active_simd_target(), cpu::gemm_bf16_kernel())};
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
