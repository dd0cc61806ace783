#include "study/capacity.h"

#include <fmt/core.h>

#include <algorithm>

#include "cache/capacity.h"
#include "kvscale/error.h"

namespace kv {

CapacityRecord capacity_of(const ArmSpec& arm, const Model& model, int64_t tokens) {
  constexpr int64_t kBlock = 16;
  const int64_t whole = (tokens + kBlock - 1) / kBlock * kBlock, layers = model.spec().num_layers;
  CapacityRecord out;
  out.record_id = fmt::format("capacity/{}/{}", arm.text(), tokens);
  out.arm = arm.text();
  out.tokens = tokens;
  out.bf16_bytes = cache_bytes(model.geometry(), ArmSpec{}.formats(layers), whole).total_bytes();
  out.arm_bytes = cache_bytes(model.geometry(), arm.formats(layers), whole).total_bytes();
  if (arm.sink > 0) {
    const int64_t kept = std::min(arm.sink, whole);
    out.arm_bytes += cache_bytes(model.geometry(), ArmSpec{}.formats(layers), kept).code_bytes -
                     cache_bytes(model.geometry(), arm.formats(layers), kept).code_bytes;
  }
  out.planned_bytes = block_bytes(model.geometry(), arm.formats(layers), kBlock);
  if (arm.layout == ArmLayout::kQ8Block) {  // what a server of it allocates is seen there
    out.allocated_bytes = out.planned_bytes;
    return out;
  }
  const KvCache cache(model.geometry(), arm.formats(layers), kBlock, 1, PageOrder::kNhd);
  out.allocated_bytes = cache.allocated_bytes();
  if (out.allocated_bytes != out.planned_bytes) {
    throw Error(
        fmt::format("capacity of {}: a block was planned with {} bytes and allocated with {}",
                    out.arm, out.planned_bytes, out.allocated_bytes));
  }
  return out;
}

}  // namespace kv
