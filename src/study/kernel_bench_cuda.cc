#include "cuda/replay.h"
#include "study/kernel_pages.h"

namespace kv {

KernelMachine prepare_kernel_bench() {
  const cuda::DeviceInfo& device = cuda::device_info();
  const cuda::DeviceBuffer large = normal_values(int64_t{2} << 30, 1);
  return {device.name, device.driver_version, cuda::read_limit_gbps(large.data(), large.bytes())};
}

KernelRow measure_kernel(const KernelCase& c, const KernelMachine& machine) {
  KernelRow row = c.op == KernelOp::kAppend ? measure_append(c) : measure_attention(c);
  row.gbps = static_cast<double>(row.bytes) / row.median_us / 1e3;
  row.share_of_read_limit = row.gbps / machine.read_limit_gbps;
  return row;
}

}  // namespace kv
