#include "cpu/read_bandwidth.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kvscale/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/read_bandwidth.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>
// clang-format on

#include "numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Sum over `n` words, so that no load can be left out.
uint64_t ReadAll(const uint64_t* data, int64_t n) {
  const hn::CappedTag<uint64_t, 8> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d);
  for (int64_t i = 0; i + 16 <= n; i += 16) {
    hwy::Prefetch(data + i + 512);
    hwy::Prefetch(data + i + 520);
    for (int64_t j = 0; j < 8; j += lanes) {
      a = hn::Add(a, hn::LoadU(d, data + i + j));
      b = hn::Add(b, hn::LoadU(d, data + i + 8 + j));
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(ReadAll);

double read_bandwidth_gbps(int64_t bytes, int repetitions) {
  if (bytes < 1 << 20) throw ValueError("read bandwidth: expected at least 1 MiB");
  const int threads = omp_get_max_threads();
  const int64_t words = bytes / 8 / threads / 16 * 16;
  struct Free {
    void operator()(uint64_t* p) const { std::free(p); }
  };
  // 8 KiB more than is read: the prefetches run ahead of the loads.
  const auto size = static_cast<size_t>((words * threads * 8 + 8192 + 4095) / 4096 * 4096);
  const std::unique_ptr<uint64_t, Free> data(
      static_cast<uint64_t*>(std::aligned_alloc(4096, size)));
  if (!data) throw Error("read bandwidth: out of memory");
  std::memset(data.get(), 1, size);
  double best = 0;
  uint64_t sum = 0;
  for (int r = 0; r < repetitions; ++r) {
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int t = 0; t < threads; ++t)
      sum += HWY_DYNAMIC_DISPATCH(ReadAll)(data.get() + t * words, words);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(words * threads * 8) / seconds / 1e9);
  }
  if (sum == 0) throw Error("read bandwidth: memory was not read");
  return best;
}

}  // namespace kv::cpu
#endif  // HWY_ONCE
