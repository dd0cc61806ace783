#include <fmt/core.h>

#include <bit>

#include "cuda/sm90/append/store_params.h"
#include "kvscale/error.h"

namespace kv::cuda {
namespace {

enum class Class { kBf16, kStatic, kInline };

Class class_of(Format format) {
  if (!is_fp8(format)) return Class::kBf16;
  return has_inline_scales(format) ? Class::kInline : Class::kStatic;
}

bool starts_on_16_bytes(const uint16_t* x, int64_t token_stride, int64_t head_stride) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && token_stride % 8 == 0 && head_stride % 8 == 0;
}

void check_supported(const StoreKvArgs& a) {
  const PageLayout& page = a.cache.page;
  const int64_t step = a.rope.cos != nullptr ? 16 : 8;
  if (page.head_dim % step != 0 || page.head_dim > 256) {
    throw UnsupportedError(
        fmt::format("store_kv: cuda supports head_dim a multiple of {} up to 256{}, needed {}",
                    step, a.rope.cos != nullptr ? " (with rotation)" : "", page.head_dim));
  }
  if (a.num_tokens * page.num_kv_heads >= int64_t{1} << 30) {
    throw UnsupportedError(fmt::format(
        "store_kv: cuda supports less than 2^30 tokens times KV heads a call, needed {}",
        a.num_tokens * page.num_kv_heads));
  }
  if (page.page_bytes >= int64_t{1} << 31) {
    throw UnsupportedError(fmt::format(
        "store_kv: cuda supports pages of less than 2^31 bytes, needed {}", page.page_bytes));
  }
  if (page.order == PageOrder::kCpu) {
    throw UnsupportedError("store_kv: cuda supports pages in NHD and HND order, needed the CPU's");
  }
  if (!starts_on_16_bytes(a.k, a.k_token_stride, a.k_head_stride) ||
      !starts_on_16_bytes(a.v, a.v_token_stride, a.v_head_stride)) {
    throw UnsupportedError(
        "store_kv: cuda supports k and v whose rows start on 16 bytes, needed other strides or "
        "addresses");
  }
}

StoreSide side_of(const StoreKvArgs& a, Side which) {
  const SideLayout& to = a.cache.page.side(which);
  StoreSide side;
  const bool is_k = which == Side::kK;
  side.x = is_k ? a.k : a.v;
  side.token_stride = is_k ? a.k_token_stride : a.v_token_stride;
  side.head_stride = is_k ? a.k_head_stride : a.v_head_stride;
  side.base = static_cast<int>(to.base);
  side.page_head_stride = static_cast<int>(to.head_stride);
  side.page_slot_stride = static_cast<int>(to.slot_stride);
  side.scale_base = static_cast<int>(to.scale_base);
  side.scale = is_k ? a.k_scale : a.v_scale;
  return side;
}

StoreParams common_params(const StoreKvArgs& a) {
  StoreParams p{};
  p.slot_mapping = a.slot_mapping;
  p.num_tokens = a.num_tokens;
  p.cache = a.cache.data;
  p.block_stride = a.cache.block_stride;
  p.head_dim = static_cast<int>(a.cache.page.head_dim);
  p.half_chunks = (p.head_dim / 8 + 1) / 2;
  p.lanes_log2 = std::bit_width(static_cast<unsigned>(p.half_chunks - 1));
  p.block_size = Divisor(static_cast<uint32_t>(a.cache.page.block_size));
  p.rope = a.rope;
  p.counters = a.counters;
  return p;
}

/// Whether K, its inline scale, V and its scale lie side by side in cells that start on 8 bytes.
bool has_pairs(const StoreKvArgs& a) {
  const SideLayout &k = a.cache.page.side(Side::kK), &v = a.cache.page.side(Side::kV);
  const int64_t dim = a.cache.page.head_dim;
  if (!has_inline_scales(k.format) || !has_inline_scales(v.format) || dim < 16) return false;
  const bool is_side_by_side =
      k.scale_base == k.base + dim && v.base == k.scale_base + 4 && v.scale_base == v.base + dim;
  const int64_t steps = k.base | k.head_stride | k.slot_stride | a.cache.block_stride |
                        static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.cache.data));
  return is_side_by_side && steps % 8 == 0;
}

void launch(const StoreParams& p, Class format_class, Rounding rounding, StreamHandle stream) {
  switch (format_class) {
    case Class::kBf16:
      return launch_store_bf16(p, rounding, stream);
    case Class::kStatic:
      return launch_store_e4m3_static(p, rounding, stream);
    case Class::kInline:
      return launch_store_e4m3_per_token_head(p, rounding, stream);
  }
}

}  // namespace

std::string store_kv(const StoreKvArgs& a, StreamHandle stream) {
  check_supported(a);
  StoreParams p = common_params(a);
  const Format k = a.cache.page.side(Side::kK).format, v = a.cache.page.side(Side::kV).format;
  p.sides[0] = side_of(a, Side::kK);
  p.sides[1] = side_of(a, Side::kV);
  const auto heads = static_cast<uint32_t>(a.cache.page.num_kv_heads);
  p.num_sides = 2;
  p.vectors_per_token = Divisor(2 * heads);
  p.first_is_k = true;
  p.has_pairs = has_pairs(a);
  if (class_of(k) == class_of(v)) {
    launch(p, class_of(k), a.rounding, stream);
  } else {
    p.num_sides = 1;
    p.vectors_per_token = Divisor(heads);
    launch(p, class_of(k), a.rounding, stream);
    p.sides[0] = p.sides[1];
    p.first_is_k = false;
    p.rope = {};
    launch(p, class_of(v), a.rounding, stream);
  }
  return fmt::format("store_kv_cuda/sm90/{},{}/{}{}", name(k), name(v),
                     a.cache.page.order == PageOrder::kNhd ? "nhd" : "hnd",
                     a.rope.cos != nullptr ? "/rope" : "");
}

}  // namespace kv::cuda
