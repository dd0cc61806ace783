#include "cache/kv_cache.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kvscale/error.h"

namespace kv {
namespace {

constexpr int64_t kAlignment = 4096;  // a layer's region starts on a memory page

int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

PageLayout page_of(const LayerGeometry& layer, const LayerFormat& format, int64_t block_size,
                   PageOrder order) {
  if (layer.latent_values == 0) {
    return PageLayout::make(format.k, format.v, layer.num_kv_heads, layer.head_dim, block_size,
                            order);
  }
  if (format.k == format.v) {
    return PageLayout::make_latent(format.k, layer.head_dim, layer.latent_values, block_size,
                                   order);
  }
  throw UnsupportedError(
      fmt::format("cache: a latent is K and V in one: expected one format, found {} and {}",
                  name(format.k), name(format.v)));
}

}  // namespace

void KvCache::Free::operator()(uint8_t* p) const { std::free(p); }

KvCache::KvCache(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
                 int64_t block_size, int64_t num_blocks, PageOrder order)
    : block_size_(block_size), pool_(num_blocks) {
  if (layers.size() != formats.size()) {
    throw ValueError(fmt::format("cache: {} layers but {} formats", layers.size(), formats.size()));
  }
  int64_t region_bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    CacheView view;
    view.page = page_of(layers[i], formats[i], block_size, order);
    view.block_stride = view.page.page_bytes;
    view.num_blocks = num_blocks;
    allocated_bytes_ += view.block_stride * num_blocks;
    region_bytes += round_up(view.block_stride * num_blocks);
    views_.push_back(view);
  }
  const auto bytes = static_cast<size_t>(round_up(std::max<int64_t>(region_bytes, 1)));
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, bytes)));
  if (!memory_) throw ValueError(fmt::format("cache: cannot allocate {} bytes", bytes));
  std::memset(memory_.get(), 0xff, bytes);
  uint8_t* at = memory_.get();
  for (CacheView& view : views_) {
    view.data = at;
    at += round_up(view.block_stride * num_blocks);
  }
}

void KvCache::copy_block(int32_t from, int32_t to) {
  for (const CacheView& view : views_) {
    std::memcpy(view.block(to), view.block(from), static_cast<size_t>(view.block_stride));
  }
}

BlockTable::~BlockTable() { truncate(0); }

BlockTable::BlockTable(BlockTable&& other) noexcept
    : cache_(other.cache_),
      blocks_(std::exchange(other.blocks_, {})),
      seq_len_(std::exchange(other.seq_len_, 0)) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(blocks_, other.blocks_);
  std::swap(seq_len_, other.seq_len_);
  return *this;
}

BlockTable BlockTable::fork() const {
  BlockTable copy(*cache_);
  copy.blocks_ = blocks_;
  copy.seq_len_ = seq_len_;
  for (const int32_t block : blocks_) cache_->pool().hold(block);
  return copy;
}

void BlockTable::own_last_block() {
  int32_t& last = blocks_.back();
  if (!cache_->pool().is_shared(last)) return;
  const int32_t copy = cache_->pool().allocate();
  cache_->copy_block(last, copy);
  cache_->pool().release(last);
  last = copy;
}

std::vector<int64_t> BlockTable::append(int64_t count) {
  const int64_t block_size = cache_->block_size();
  const auto held = static_cast<int64_t>(blocks_.size());
  const int64_t needed = (seq_len_ + count + block_size - 1) / block_size - held;
  const bool starts_inside = count > 0 && seq_len_ % block_size != 0;
  const bool copies = starts_inside && cache_->pool().is_shared(blocks_.back());
  if (needed + (copies ? 1 : 0) > cache_->pool().num_free()) {
    throw ValueError(fmt::format("cache: {} more tokens need {} blocks, {} of {} are free", count,
                                 needed + (copies ? 1 : 0), cache_->pool().num_free(),
                                 cache_->pool().num_blocks()));
  }
  if (starts_inside) own_last_block();
  for (int64_t i = 0; i < needed; ++i) blocks_.push_back(cache_->pool().allocate());
  std::vector<int64_t> slots;
  slots.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i, ++seq_len_) {
    slots.push_back(blocks_[static_cast<size_t>(seq_len_ / block_size)] * block_size +
                    seq_len_ % block_size);
  }
  return slots;
}

void BlockTable::truncate(int64_t seq_len) {
  const int64_t block_size = cache_->block_size();
  const auto keep = static_cast<size_t>((seq_len + block_size - 1) / block_size);
  while (blocks_.size() > keep) {
    cache_->pool().release(blocks_.back());
    blocks_.pop_back();
  }
  seq_len_ = seq_len;
}

}  // namespace kv
