#include "ops/store_kv.h"

#include <fmt/core.h>

#include "kvscale/error.h"
#include "ops/cache_checks.h"
#include "ops/store_kv_cpu.h"
#include "ops/store_kv_cuda.h"
#include "tensor/shape.h"

namespace kv {
namespace {

void check(const StoreKvParams& p) {
  Dim tokens{"num_tokens", static_cast<int64_t>(p.slot_mapping.size())};
  Dim heads{"num_kv_heads", p.cache.page.num_kv_heads}, dim{"head_dim", p.cache.page.head_dim};
  expect("store_kv", "k", p.k, DType::kBF16, {&tokens, &heads, &dim});
  if (!p.cache.page.holds_latents)
    expect("store_kv", "v", p.v, DType::kBF16, {&tokens, &heads, &dim});
  for (const Side side : p.cache.page.stored_sides())
    check_scales("store_kv", p.cache, side, side == Side::kK ? p.k_scale : p.v_scale);
  const int64_t slots = p.cache.num_blocks * p.cache.page.block_size;
  for (const int64_t slot : p.slot_mapping) {
    if (slot < -1 || slot >= slots) {
      throw ValueError(
          fmt::format("store_kv: slot_mapping: expected -1 to {}, found {}", slots - 1, slot));
    }
  }
}

}  // namespace

KernelUsed store_kv(const StoreKvParams& params, Device device) {
  check(params);
  if (device == Device::kCuda && params.cache.page.holds_latents) {
    throw UnsupportedError("store_kv: latents (MLA): the cuda twin has none, the cpu twin has");
  }
  return device == Device::kCuda ? store_kv_cuda(params) : store_kv_cpu(params);
}

}  // namespace kv
