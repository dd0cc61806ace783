#include "study/kernel_pages.h"

#include <algorithm>
#include <numeric>

#include "cuda/limits.h"
#include "cuda/store_kv.h"

namespace kv {

PageLayout page_of(const KernelCase& c) {
  return PageLayout::make(c.format, c.format, c.num_kv_heads, c.head_dim, c.block_size, c.order);
}

cuda::DeviceBuffer normal_values(int64_t count, uint64_t seed) {
  cuda::DeviceBuffer values(count * 2);
  cuda::fill_normal(values.as<uint16_t>(), count, seed, nullptr);
  return values;
}

KernelPages::KernelPages(const KernelCase& c, int64_t num_blocks) {
  view_.page = page_of(c);
  view_.block_stride = view_.page.page_bytes;
  view_.num_blocks = num_blocks;
  pages_ = cuda::DeviceBuffer(view_.block_stride * num_blocks);
  view_.data = pages_.as<uint8_t>();
  host_scales_.assign(static_cast<size_t>(c.num_kv_heads), 6.0f / 448);  // N(0, 1) stays below 6
  scales_ = uploaded(host_scales_);
  fill();
}

void KernelPages::fill() {
  const int64_t row = view_.page.num_kv_heads * view_.page.head_dim;
  const int64_t slots = view_.num_blocks * view_.page.block_size;
  const int64_t chunk = std::min<int64_t>(slots, 1 << 16);
  const cuda::DeviceBuffer k(chunk * row * 2), v(chunk * row * 2), mapping(chunk * 8);
  std::vector<int64_t> slot(static_cast<size_t>(chunk));
  for (int64_t first = 0; first < slots; first += chunk) {
    const int64_t count = std::min(chunk, slots - first);
    std::iota(slot.begin(), slot.end(), first);
    cuda::upload(mapping.data(), slot.data(), count * 8, nullptr);
    cuda::fill_normal(k.as<uint16_t>(), count * row, static_cast<uint64_t>(2 * first), nullptr);
    cuda::fill_normal(v.as<uint16_t>(), count * row, static_cast<uint64_t>(2 * first + 1), nullptr);
    cuda::StoreKvArgs a;
    a.k = k.as<const uint16_t>();
    a.v = v.as<const uint16_t>();
    a.k_token_stride = a.v_token_stride = row;
    a.k_head_stride = a.v_head_stride = view_.page.head_dim;
    a.slot_mapping = mapping.as<const int64_t>();
    a.num_tokens = count;
    a.cache = view_;
    a.k_scale = a.v_scale = scales();
    cuda::store_kv(a, nullptr);
  }
  cuda::synchronize_device();
}

}  // namespace kv
