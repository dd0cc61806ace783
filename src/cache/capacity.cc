#include "cache/capacity.h"

#include <fmt/core.h>

#include <algorithm>

#include "kvscale/error.h"

namespace kv {
namespace {

int64_t multiply(int64_t a, int64_t b) {
  int64_t out = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &out)) {
    throw ValueError(fmt::format("cache bytes: {} x {} is negative or leaves 64 bits", a, b));
  }
  return out;
}

int64_t add(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) throw ValueError("cache bytes: the sum leaves 64 bits");
  return out;
}

void check_sizes(const std::vector<LayerGeometry>& layers,
                 const std::vector<LayerFormat>& formats) {
  if (layers.size() != formats.size()) {
    throw ValueError(
        fmt::format("cache bytes: {} layers but {} formats", layers.size(), formats.size()));
  }
}

int64_t static_scales(Format format, int64_t num_kv_heads) {
  if (format == Format::kE4m3PerTensor) return 1;
  return format == Format::kE4m3PerHead ? num_kv_heads : 0;
}

void add_latents(const LayerGeometry& layer, Format format, int64_t tokens, CacheBytes& out) {
  const int64_t kept = layer.window > 0 ? std::min(tokens, layer.window) : tokens;
  const LatentBytes one = latent_bytes(format, layer.head_dim, layer.latent_values);
  out.code_bytes = add(out.code_bytes, multiply(kept, one.values));
  out.scale_bytes = add(out.scale_bytes, multiply(kept, one.scales));
  out.static_scale_bytes += 4 * static_scales(format, 1);
}

}  // namespace

CacheBytes cache_bytes(const std::vector<LayerGeometry>& layers,
                       const std::vector<LayerFormat>& formats, int64_t tokens) {
  check_sizes(layers, formats);
  CacheBytes out;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerGeometry& layer = layers[i];
    if (layer.latent_values > 0) {
      add_latents(layer, formats[i].k, tokens, out);
      continue;
    }
    const int64_t kept = layer.window > 0 ? std::min(tokens, layer.window) : tokens;
    const int64_t vectors = multiply(kept, layer.num_kv_heads);
    for (const Format format : {formats[i].k, formats[i].v}) {
      out.code_bytes =
          add(out.code_bytes, multiply(vectors, multiply(layer.head_dim, value_bytes(format))));
      out.scale_bytes =
          add(out.scale_bytes, multiply(vectors, scale_bytes(format, layer.head_dim)));
      out.static_scale_bytes += 4 * static_scales(format, layer.num_kv_heads);
    }
  }
  return out;
}

int64_t block_bytes(const std::vector<LayerGeometry>& layers,
                    const std::vector<LayerFormat>& formats, int64_t block_size) {
  std::vector<LayerGeometry> whole = layers;
  for (LayerGeometry& layer : whole) layer.window = 0;
  const CacheBytes bytes = cache_bytes(whole, formats, block_size);
  return bytes.code_bytes + bytes.scale_bytes;
}

int64_t first_key_kept(int64_t window, int64_t position) {
  if (window == 0) return 0;
  return std::max<int64_t>(0, position - window + 1) / kWindowAlignment * kWindowAlignment;
}

int64_t pool_blocks(const LayerGeometry& layer, int64_t block_size, int64_t num_blocks,
                    const WindowRoom& room) {
  if (layer.window == 0 || room.sequences == 0) return num_blocks;
  // Neither end of a stretch of tokens lies at a block's: one block more. A shared block is copied.
  const auto blocks = [&](int64_t tokens) { return (tokens - 1) / block_size + 2; };
  const int64_t kept = layer.window - 1 + kWindowAlignment;
  const int64_t each = add(blocks(add(kept, room.tokens_per_pass)), blocks(kept) + 1);
  return std::min(num_blocks, multiply(room.sequences, each));
}

int64_t pool_bytes(const std::vector<LayerGeometry>& layers,
                   const std::vector<LayerFormat>& formats, int64_t block_size, int64_t num_blocks,
                   const WindowRoom& room) {
  check_sizes(layers, formats);
  int64_t out = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    out = add(out, multiply(pool_blocks(layers[i], block_size, num_blocks, room),
                            block_bytes({layers[i]}, {formats[i]}, block_size)));
  }
  return out;
}

int64_t tokens_that_fit(const std::vector<LayerGeometry>& layers,
                        const std::vector<LayerFormat>& formats, int64_t block_size,
                        int64_t budget_bytes) {
  const int64_t statics = cache_bytes(layers, formats, 0).static_scale_bytes;
  const int64_t block = block_bytes(layers, formats, block_size);
  if (block <= 0) throw ValueError("cache bytes: a block of zero bytes");
  return std::max<int64_t>(0, budget_bytes - statics) / block * block_size;
}

}  // namespace kv
