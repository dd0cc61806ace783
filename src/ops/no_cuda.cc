#include "kvscale/error.h"
#include "ops/attend_cuda.h"
#include "ops/store_kv_cuda.h"

namespace kv {

std::vector<KernelUsed> attend_cuda(std::span<const AttendParams>) {
  throw UnsupportedError("attend: needed a CUDA twin, this build has: cpu");
}

KernelUsed store_kv_cuda(const StoreKvParams&) {
  throw UnsupportedError("store_kv: needed a CUDA twin, this build has: cpu");
}

}  // namespace kv
