#include <algorithm>

#include "cuda/replay.h"
#include "cuda/store_kv.h"
#include "ops/store_kv.h"
#include "study/kernel_pages.h"

namespace kv {
namespace {

/// One case's memory and calls: tokens of several sets, scattered over slots as a batch of many
/// sequences has them.
class AppendBench {
 public:
  explicit AppendBench(const KernelCase& c)
      : c_(c),
        row_values_(c.num_kv_heads * c.head_dim),
        bytes_(c.tokens * (row_values_ * 4 + page_of(c).page_bytes / c.block_size)),
        sets_(std::min<int64_t>(200, kRotatedBytes / bytes_ + 2)),
        pages_(c, (sets_ * c.tokens + c.block_size - 1) / c.block_size + 1),
        slots_(shuffled<int64_t>(pages_.view().num_blocks * c.block_size)),
        device_slots_(uploaded(slots_)),
        k_(normal_values(sets_ * c.tokens * row_values_, 1)),
        v_(normal_values(sets_ * c.tokens * row_values_, 2)),
        counters_(sizeof(cuda::StoreCounters)) {
    cuda::fill_bytes(counters_.data(), 0, counters_.bytes(), nullptr);
  }

  KernelRow run() const {
    KernelRow row;
    row.of = c_;
    row.bytes = bytes_;
    std::vector<cuda::Call> calls;
    for (int64_t set = 0; set < sets_; ++set) {
      calls.push_back([this, set, &row](cuda::StreamHandle stream) {
        row.kernel = cuda::store_kv(args(set), stream);
      });
    }
    const cuda::ReplayTiming time = cuda::time_calls(calls);
    row.median_us = time.median_us;
    row.fastest_us = time.fastest_us;
    row.p90_us = time.p90_us;
    row.differing_bytes = differing_bytes();
    return row;
  }

 private:
  cuda::StoreKvArgs args(int64_t set) const {
    cuda::StoreKvArgs a;
    a.k = k_.as<const uint16_t>() + set * c_.tokens * row_values_;
    a.v = v_.as<const uint16_t>() + set * c_.tokens * row_values_;
    a.k_token_stride = a.v_token_stride = row_values_;
    a.k_head_stride = a.v_head_stride = c_.head_dim;
    a.slot_mapping = device_slots_.as<const int64_t>() + set * c_.tokens;
    a.num_tokens = c_.tokens;
    a.cache = pages_.view();
    a.k_scale = a.v_scale = pages_.scales();
    if (c_.counts) a.counters = counters_.as<cuda::StoreCounters>();
    return a;
  }

  /// Of the first tokens of the first set, from what the reference stores at the same slots.
  int64_t differing_bytes() const {
    const int64_t tokens = std::min<int64_t>(c_.tokens, 64), stride = pages_.view().block_stride;
    std::vector<uint8_t> stored(static_cast<size_t>(tokens * stride));
    std::vector<int64_t> slots;
    for (int64_t t = 0; t < tokens; ++t) {  // each token's block, as one block of its own
      const int64_t slot = slots_[static_cast<size_t>(t)];
      cuda::download(stored.data() + t * stride, pages_.view().block(slot / c_.block_size), stride,
                     nullptr);
      slots.push_back(t * c_.block_size + slot % c_.block_size);
    }
    std::vector<uint8_t> expected = stored;
    store_reference(expected, slots);
    int64_t differing = 0;
    for (size_t i = 0; i < stored.size(); ++i) differing += stored[i] != expected[i];
    return differing;
  }

  void store_reference(std::vector<uint8_t>& blocks, const std::vector<int64_t>& slots) const {
    const auto tokens = static_cast<int64_t>(slots.size());
    std::vector<uint16_t> k(static_cast<size_t>(tokens * row_values_)), v = k;
    cuda::download(k.data(), k_.data(), tokens * row_values_ * 2, nullptr);
    cuda::download(v.data(), v_.data(), tokens * row_values_ * 2, nullptr);
    StoreKvParams p;
    p.k = TensorView::contiguous(k.data(), DType::kBF16, {tokens, c_.num_kv_heads, c_.head_dim});
    p.v = TensorView::contiguous(v.data(), DType::kBF16, {tokens, c_.num_kv_heads, c_.head_dim});
    p.slot_mapping = slots;
    p.cache = pages_.view();
    p.cache.data = blocks.data();
    p.cache.num_blocks = tokens;
    p.k_scale = p.v_scale = pages_.host_scales();
    store_kv_ref(p);
  }

  KernelCase c_;
  int64_t row_values_, bytes_, sets_;
  KernelPages pages_;
  std::vector<int64_t> slots_;
  cuda::DeviceBuffer device_slots_, k_, v_, counters_;
};

}  // namespace

KernelRow measure_append(const KernelCase& c) { return AppendBench(c).run(); }

}  // namespace kv
