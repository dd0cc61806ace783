#include "ops/store_kv_cuda.h"

#include "cuda/device.h"
#include "cuda/store_kv.h"
#include "kvscale/error.h"

namespace kv {
namespace {

template <class T>
cuda::DeviceBuffer uploaded(std::span<const T> host, cuda::StreamHandle stream) {
  cuda::DeviceBuffer buffer(static_cast<int64_t>(host.size_bytes()));
  cuda::upload(buffer.data(), host.data(), buffer.bytes(), stream);
  return buffer;
}

cuda::StoreKvArgs args_of(const StoreKvParams& p) {
  cuda::StoreKvArgs a;
  a.k = p.k.as<const uint16_t>();
  a.v = p.v.as<const uint16_t>();
  a.k_token_stride = p.k.strides[0];
  a.k_head_stride = p.k.strides[1];
  a.v_token_stride = p.v.strides[0];
  a.v_head_stride = p.v.strides[1];
  a.num_tokens = p.k.sizes[0];
  a.cache = p.cache;
  a.rounding = p.rounding;
  return a;
}

/// What is lost is counted on the device; how many values were written follows from the slots.
void add_counts(const StoreKvParams& p, const cuda::StoreCounters& lost) {
  for (const int64_t slot : p.slot_mapping) {
    if (slot >= 0) p.counts->values += 2 * p.cache.page.num_kv_heads * p.cache.page.head_dim;
  }
  p.counts->saturated += static_cast<int64_t>(lost.saturated);
  p.counts->flushed += static_cast<int64_t>(lost.flushed);
  p.counts->nan += static_cast<int64_t>(lost.nan);
}

}  // namespace

KernelUsed store_kv_cuda(const StoreKvParams& p) {
  if (p.k.device != Device::kCuda || p.v.device != Device::kCuda)
    throw ValueError("store_kv: k and v: expected device memory for the CUDA twin, found host");
  cuda::device_info();
  const cuda::Stream stream;
  cuda::StoreKvArgs a = args_of(p);
  const auto slots = uploaded(p.slot_mapping, stream.handle());
  const auto k_scale = uploaded(p.k_scale, stream.handle()),
             v_scale = uploaded(p.v_scale, stream.handle());
  a.slot_mapping = slots.as<const int64_t>();
  a.k_scale = k_scale.as<const float>();
  a.v_scale = v_scale.as<const float>();
  cuda::StoreCounters lost{};
  cuda::DeviceBuffer counters(p.counts != nullptr ? sizeof lost : 0);
  if (p.counts != nullptr) {
    cuda::fill_bytes(counters.data(), 0, sizeof lost, stream.handle());
    a.counters = counters.as<cuda::StoreCounters>();
  }
  KernelUsed used{cuda::store_kv(a, stream.handle())};
  cuda::download(&lost, counters.data(), counters.bytes(), stream.handle());
  stream.synchronize();
  if (p.counts != nullptr) add_counts(p, lost);
  return used;
}

}  // namespace kv
