#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kv {

/// What one side (K or V) of one layer stores, named by the bytes:
///   kBf16              2 bytes a value
///   kE4m3PerTensor     1 byte a value; one scale for the layer, outside the pages
///   kE4m3PerHead       1 byte a value; one scale per KV head, outside the pages
///   kE4m3PerTokenHead  1 byte a value; one F32 scale per token and KV head, inside the page
///   kE4m3PerTokenTile  latents only: 1 byte a value with one F32 scale per token and 128 values,
///                      inside the page; the part that RoPE turned in BF16 (vLLM's fp8_ds_mla)
///   kQ8Block32         1 byte a value, a whole number, and one F16 scale per 32 values
///   (llama.cpp's
///                      q8_0): counted for servers that have it, stored by no cache here
enum class Format : uint8_t {
  kBf16,
  kE4m3PerTensor,
  kE4m3PerHead,
  kE4m3PerTokenHead,
  kE4m3PerTokenTile,
  kQ8Block32
};

std::string_view name(Format format);
inline bool is_quantized(Format format) { return format != Format::kBf16; }
inline bool is_fp8(Format format) { return is_quantized(format) && format != Format::kQ8Block32; }
inline bool has_inline_scales(Format format) {
  return format == Format::kE4m3PerTokenHead || format == Format::kE4m3PerTokenTile ||
         format == Format::kQ8Block32;
}

/// Bytes of one stored value, without scales.
inline int64_t value_bytes(Format format) { return is_quantized(format) ? 1 : 2; }

inline constexpr int64_t kQ8Values = 32;  // values under one F16 scale of kQ8Block32

/// Bytes of the inline scales of one token and KV head on one side.
inline int64_t scale_bytes(Format format, int64_t head_dim) {
  if (format == Format::kQ8Block32) return (head_dim + kQ8Values - 1) / kQ8Values * 2;
  return has_inline_scales(format) ? 4 : 0;
}

/// Bytes that one token and KV head takes on one side: head_dim values and, where there is one, the
/// inline scales.
inline int64_t side_bytes(Format format, int64_t head_dim) {
  return head_dim * value_bytes(format) + scale_bytes(format, head_dim);
}

inline constexpr int64_t kLatentTile = 128;  // values under one scale of kE4m3PerTokenTile

/// Bytes of a token's latent of `head_dim` values, of which V is the first `latent_values`: its
/// codes, and the scales among them. Throws UnsupportedError for a format that no engine stores
/// latents in, or whose tiles do not divide the latent.
struct LatentBytes {
  int64_t values = 0, scales = 0;
};
LatentBytes latent_bytes(Format format, int64_t head_dim, int64_t latent_values);

enum class Side : uint8_t { kK = 0, kV = 1 };
inline constexpr std::array<Side, 2> kSides = {Side::kK, Side::kV};
inline std::string_view name(Side side) { return side == Side::kK ? "k" : "v"; }

/// The order of bytes in a page (one block of one layer).
///   kNhd  [slot][head][K | K scale | V | V scale]: vLLM's default since 0.26
///   kHnd  [head][slot][K | K scale | V | V scale]: vLLM with VLLM_KV_CACHE_LAYOUT=HND
///   kCpu  [head]{ K [dim][slot], K scales [slot], V [slot][dim], V scales [slot] }: keys lie along
///   the slots, so that
///         one vector load gives one dimension of many keys and the score loop needs no
///         transposition
/// Latents lie token after token in every order: [slot][codes | scales of the tiles | BF16 part].
enum class PageOrder : uint8_t { kNhd, kHnd, kCpu };

/// Where one side's bytes lie in a page: byte(head, slot, d) = base + head * head_stride + slot *
/// slot_stride + d * dim_stride; its inline scale (if the format has one) likewise. All in bytes.
struct SideLayout {
  Format format = Format::kBf16;
  int64_t base = 0, head_stride = 0, slot_stride = 0, dim_stride = 0;
  int64_t scale_base = 0, scale_head_stride = 0, scale_slot_stride = 0;

  int64_t byte(int64_t head, int64_t slot, int64_t d) const {
    return base + head * head_stride + slot * slot_stride + d * dim_stride;
  }
  int64_t scale_byte(int64_t head, int64_t slot) const {
    return scale_base + head * scale_head_stride + slot * scale_slot_stride;
  }
};

/// The bytes of one page: the only place that knows where a byte of a token lives.
struct PageLayout {
  int64_t num_kv_heads = 0, head_dim = 0, block_size = 0;
  int64_t value_dim = 0;       // values of V per head: head_dim, but fewer for latents
  bool holds_latents = false;  // V is the first value_dim values of K, with K's scales
  int64_t bf16_base = 0;       // latents in kE4m3PerTokenTile: where the values after them begin
  PageOrder order = PageOrder::kNhd;
  int64_t page_bytes = 0;
  std::array<SideLayout, 2> sides;

  const SideLayout& side(Side s) const { return sides[static_cast<size_t>(s)]; }

  /// The sides that are stored: V of latents is not.
  std::span<const Side> stored_sides() const {
    return std::span(kSides).first(holds_latents ? 1 : 2);
  }

  /// Values of a latent that are codes, and how many lie under one scale.
  int64_t coded_values() const { return has_tiles() ? value_dim : head_dim; }
  bool has_tiles() const { return sides[0].format == Format::kE4m3PerTokenTile; }

  /// Throws ValueError unless all sizes are positive and head_dim is a multiple of 4 (inline scales
  /// stay 4-byte aligned, as in vLLM).
  static PageLayout make(Format k, Format v, int64_t num_kv_heads, int64_t head_dim,
                         int64_t block_size, PageOrder order);

  /// A page of latents of one head: both sides are views of one vector of head_dim values. Throws
  /// ValueError likewise, and UnsupportedError as latent_bytes().
  static PageLayout make_latent(Format format, int64_t head_dim, int64_t latent_values,
                                int64_t block_size, PageOrder order);
};

}  // namespace kv
