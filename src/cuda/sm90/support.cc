#include "cuda/sm90/support.h"

#include <fmt/core.h>

#include "kvscale/error.h"

namespace kv::cuda {
namespace {

Cells cells_of(const PageLayout& page) {
  const Format k = page.side(Side::kK).format, v = page.side(Side::kV).format;
  if (has_inline_scales(k) && has_inline_scales(v)) return Cells::kInline;
  if (!is_fp8(k) && !is_fp8(v)) return Cells::kBf16;
  if (is_fp8(k) && is_fp8(v) && !has_inline_scales(k) && !has_inline_scales(v))
    return Cells::kStatic;
  throw UnsupportedError(
      fmt::format("attend: cuda supports K and V both bf16, both with static scales or both with "
                  "inline scales, needed {} and {}",
                  name(k), name(v)));
}

void check_addresses(const AttendRequest& a) {
  if (reinterpret_cast<uintptr_t>(a.q) % 8 != 0 || a.q_row_stride % 4 != 0 ||
      a.q_head_stride % 4 != 0 || a.out_row_stride % 2 != 0 || a.out_head_stride % 2 != 0 ||
      reinterpret_cast<uintptr_t>(a.out) % 8 != 0 || a.cache.block_stride % 16 != 0 ||
      reinterpret_cast<uintptr_t>(a.cache.data) % 16 != 0) {
    throw UnsupportedError(
        "attend: cuda supports q whose rows start on 8 bytes, out on 8 bytes with even strides and "
        "pages on 16 bytes, needed other strides or addresses");
  }
}

}  // namespace

Cells check_attend(const AttendRequest& a) {
  const PageLayout& page = a.cache.page;
  if (page.order == PageOrder::kCpu)
    throw UnsupportedError("attend: cuda supports pages in NHD and HND order, needed the CPU's");
  if (page.block_size % 16 != 0) {
    throw UnsupportedError(fmt::format(
        "attend: cuda supports block_size a multiple of 16, needed {}", page.block_size));
  }
  const Cells cells = cells_of(page);
  const int64_t d = page.head_dim;
  if (d != 64 && d != 96 && d != 128 && d != 256) {
    throw UnsupportedError(
        fmt::format("attend: cuda supports head_dim 64, 96, 128 and 256, needed {}", d));
  }
  if (a.q_per_kv < 1 || a.q_per_kv > 16) {
    throw UnsupportedError(fmt::format(
        "attend: cuda supports 1 to 16 query heads per KV head, needed {}", a.q_per_kv));
  }
  if (a.fp8_math && cells != Cells::kStatic) {
    throw UnsupportedError(fmt::format(
        "attend: cuda supports math=fp8 on e4m3_per_tensor and e4m3_per_head, needed {}",
        name(page.side(Side::kK).format)));
  }
  if (!(a.softmax_scale > 0)) {
    throw ValueError(fmt::format("attend: softmax_scale: expected > 0, found {}", a.softmax_scale));
  }
  check_addresses(a);
  return cells;
}

}  // namespace kv::cuda
