#include "kvscale/error.h"
#include "study/kernel_bench.h"

namespace kv {
namespace {

[[noreturn]] void refuse_cuda() {
  throw UnsupportedError(
      "bench: needed --device cuda, this build has no CUDA kernels: those of the preset cuda have "
      "(cmake --preset cuda; nvcc 13 to build, a card of compute capability 9.0 to run)");
}

}  // namespace

KernelMachine prepare_kernel_bench() { refuse_cuda(); }
KernelRow measure_kernel(const KernelCase&, const KernelMachine&) { refuse_cuda(); }

}  // namespace kv
