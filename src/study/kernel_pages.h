#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "cache/kv_cache.h"
#include "cuda/device.h"
#include "study/kernel_bench.h"

namespace kv {

/// Calls of a bench rotate over so many bytes: several times the L2.
inline constexpr int64_t kRotatedBytes = 256 << 20;

/// Pages on the card as a case has them, filled with N(0, 1) keys and values through store_kv.
class KernelPages {
 public:
  KernelPages(const KernelCase& c, int64_t num_blocks);

  const CacheView& view() const { return view_; }
  const float* scales() const { return scales_.as<const float>(); }
  const std::vector<float>& host_scales() const { return host_scales_; }

 private:
  void fill();

  CacheView view_;
  cuda::DeviceBuffer pages_, scales_;
  std::vector<float> host_scales_;
};

PageLayout page_of(const KernelCase& c);

/// 0 ... count - 1 in a random order, the same on every run: blocks, or slots.
template <class T>
std::vector<T> shuffled(int64_t count) {
  std::vector<T> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<T>(i);
  std::mt19937_64 rng(5);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng() % i]);
  return order;
}

template <class T>
cuda::DeviceBuffer uploaded(const std::vector<T>& host) {
  cuda::DeviceBuffer buffer(static_cast<int64_t>(host.size() * sizeof(T)));
  cuda::upload(buffer.data(), host.data(), buffer.bytes(), nullptr);
  return buffer;
}

/// N(0, 1) values in bf16.
cuda::DeviceBuffer normal_values(int64_t count, uint64_t seed);

KernelRow measure_attention(const KernelCase& c);
KernelRow measure_append(const KernelCase& c);

}  // namespace kv
