#include "model/token_dispersion.h"

#include <cmath>
#include <cstring>

#include "numeric/bf16.h"
#include "numeric/bulk.h"

namespace kv {
namespace {

/// One token's key of one head, static: codes of the dispersed key under the head's scale.
void encode_static(const StoreKvParams& p, const uint16_t* key, int64_t head, int64_t offset,
                   uint8_t* page) {
  const SideLayout& side = p.cache.page.side(Side::kK);
  const auto dim = static_cast<size_t>(p.cache.page.head_dim);
  std::vector<float> wide(dim);
  std::vector<uint8_t> codes(dim);
  bf16_decode(key, wide.data(), dim);
  e4m3_encode(wide.data(), codes.data(), dim, p.k_scale[static_cast<size_t>(head)], p.rounding);
  for (size_t d = 0; d < dim; ++d)
    page[side.byte(head, offset, static_cast<int64_t>(d))] = codes[d];
}

}  // namespace

float TokenDispersion::factor(int64_t position) const {
  return std::ldexp(1.0f, exponent_(position));
}

void TokenDispersion::disperse(std::span<const float> factors, int64_t width, uint16_t* k) {
  for (const float factor : factors) {
    for (int64_t i = 0; i < width; ++i, ++k) *k = bf16::encode(bf16::decode(*k) * factor);
  }
}

std::vector<LayerFormat> TokenDispersion::page_formats(std::vector<LayerFormat> asked) {
  for (LayerFormat& layer : asked) {
    if (is_fp8(layer.k)) layer.k = Format::kE4m3PerTokenHead;
  }
  return asked;
}

KernelUsed TokenDispersion::store(StoreKvParams params, std::span<const float> factors,
                                  Format asked_k) {
  const PageLayout& layout = params.cache.page;
  const auto* keys = params.k.as<const uint16_t>();
  std::vector<uint16_t> plain;
  if (asked_k == Format::kBf16) {
    const int64_t width = layout.num_kv_heads * layout.head_dim;
    plain.assign(keys, keys + std::ssize(factors) * width);
    std::vector<float> back;
    for (const float factor : factors) back.push_back(1 / factor);
    disperse(back, width, plain.data());
    params.k.data = plain.data();
    return store_kv(params, Device::kCpu);
  }
  const KernelUsed used = store_kv(params, Device::kCpu);
  const SideLayout& side = layout.side(Side::kK);
  for (size_t t = 0; t < factors.size(); ++t) {
    const int64_t slot = params.slot_mapping[t], offset = slot % layout.block_size;
    if (slot < 0) continue;
    uint8_t* page = params.cache.block(slot / layout.block_size);
    for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
      float scale = 0;
      std::memcpy(&scale, page + side.scale_byte(head, offset), sizeof scale);
      if (!has_inline_scales(asked_k)) {
        const int64_t row = static_cast<int64_t>(t) * layout.num_kv_heads + head;
        encode_static(params, keys + row * layout.head_dim, head, offset, page);
        scale = params.k_scale[static_cast<size_t>(head)];
      }
      scale /= factors[t];
      std::memcpy(page + side.scale_byte(head, offset), &scale, sizeof scale);
    }
  }
  return used;
}

}  // namespace kv
