#include "cache/kv_cache.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
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

void KvCache::sort_into_pools(const std::vector<LayerGeometry>& layers, int64_t num_blocks,
                              const WindowRoom& room) {
  std::map<std::pair<int64_t, int64_t>, size_t, std::greater<>> pools;  // {blocks, window}
  const auto key = [&](const LayerGeometry& layer) {
    const int64_t blocks = pool_blocks(layer, block_size_, num_blocks, room);
    return std::pair(blocks, blocks == num_blocks ? 0 : layer.window);
  };
  for (const LayerGeometry& layer : layers) pools[key(layer)] = 0;
  for (auto& [blocks_and_window, number] : pools) {
    number = pools_.size();
    pools_.push_back({blocks_and_window.second, BlockPool(blocks_and_window.first)});
  }
  if (pools_.empty()) pools_.push_back({0, BlockPool(num_blocks)});
  for (const LayerGeometry& layer : layers) pool_of_.push_back(pools.at(key(layer)));
}

KvCache::KvCache(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
                 int64_t block_size, int64_t num_blocks, PageOrder order, const WindowRoom& room)
    : block_size_(block_size) {
  if (layers.size() != formats.size()) {
    throw ValueError(fmt::format("cache: {} layers but {} formats", layers.size(), formats.size()));
  }
  sort_into_pools(layers, num_blocks, room);
  int64_t region_bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    CacheView view;
    view.page = page_of(layers[i], formats[i], block_size, order);
    view.block_stride = view.page.page_bytes;
    view.num_blocks = pools_[pool_of_[i]].blocks.num_blocks();
    allocated_bytes_ += view.block_stride * view.num_blocks;
    region_bytes += round_up(view.block_stride * view.num_blocks);
    views_.push_back(view);
  }
  const auto bytes = static_cast<size_t>(round_up(std::max<int64_t>(region_bytes, 1)));
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, bytes)));
  if (!memory_) throw ValueError(fmt::format("cache: cannot allocate {} bytes", bytes));
  std::memset(memory_.get(), 0xff, bytes);
  uint8_t* at = memory_.get();
  for (CacheView& view : views_) {
    view.data = at;
    at += round_up(view.block_stride * view.num_blocks);
  }
}

void KvCache::copy_block(size_t pool, int32_t from, int32_t to) {
  for (size_t i = 0; i < views_.size(); ++i) {
    if (pool_of_[i] != pool) continue;
    std::memcpy(views_[i].block(to), views_[i].block(from),
                static_cast<size_t>(views_[i].block_stride));
  }
}

BlockTable::~BlockTable() {
  if (!blocks_.empty()) truncate(0);
}

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
  for (size_t pool = 0; pool < blocks_.size(); ++pool) {
    for (const int32_t block : blocks_[pool]) {
      if (block >= 0) cache_->pool(pool).hold(block);
    }
  }
  return copy;
}

void BlockTable::own_last_block(size_t pool) {
  int32_t& last = blocks_[pool].back();
  if (!cache_->pool(pool).is_shared(last)) return;
  const int32_t copy = cache_->pool(pool).allocate();
  cache_->copy_block(pool, last, copy);
  cache_->pool(pool).release(last);
  last = copy;
}

int64_t BlockTable::blocks_needed(size_t pool, int64_t count) const {
  const int64_t block_size = cache_->block_size();
  const bool starts_inside = count > 0 && seq_len_ % block_size != 0;
  const bool copies = starts_inside && cache_->pool(pool).is_shared(blocks_[pool].back());
  return (seq_len_ + count + block_size - 1) / block_size - std::ssize(blocks_[pool]) +
         (copies ? 1 : 0);
}

void BlockTable::append(int64_t count) {
  for (size_t pool = 0; pool < blocks_.size(); ++pool) {
    const int64_t needed = blocks_needed(pool, count);
    if (needed <= cache_->pool(pool).num_free()) continue;
    throw ValueError(fmt::format("cache: {} more tokens need {} blocks, {} of {} are free", count,
                                 needed, cache_->pool(pool).num_free(),
                                 cache_->pool(pool).num_blocks()));
  }
  for (size_t pool = 0; pool < blocks_.size(); ++pool) {
    if (count > 0 && seq_len_ % cache_->block_size() != 0) own_last_block(pool);
    for (int64_t left = blocks_needed(pool, count); left > 0; --left)
      blocks_[pool].push_back(cache_->pool(pool).allocate());
  }
  seq_len_ += count;
}

std::vector<int64_t> BlockTable::slots(size_t pool, int64_t first, int64_t count) const {
  const int64_t block_size = cache_->block_size();
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(count));
  for (int64_t t = first; t < first + count; ++t) {
    out.push_back(blocks_[pool][static_cast<size_t>(t / block_size)] * block_size + t % block_size);
  }
  return out;
}

void BlockTable::leave_windows(int64_t back_to) {
  const int64_t block_size = cache_->block_size();
  for (size_t pool = 0; pool < blocks_.size(); ++pool) {
    const int64_t window = cache_->window(pool);
    const int64_t seen = first_key_kept(window, seq_len_);
    const int64_t kept = first_key_kept(window, back_to);
    for (int64_t i = 0; (i + 1) * block_size <= seen; ++i) {
      int32_t& block = blocks_[pool][static_cast<size_t>(i)];
      const bool is_kept = i * block_size < back_to && (i + 1) * block_size > kept;
      if (block < 0 || is_kept) continue;
      cache_->pool(pool).release(block);
      block = -1;
    }
  }
}

void BlockTable::truncate(int64_t seq_len) {
  const int64_t block_size = cache_->block_size();
  const auto keep = static_cast<size_t>((seq_len + block_size - 1) / block_size);
  for (size_t pool = 0; pool < blocks_.size(); ++pool) {
    std::vector<int32_t>& blocks = blocks_[pool];
    const int64_t first = first_key_kept(cache_->window(pool), seq_len);
    if (first < seq_len && blocks[static_cast<size_t>(first / block_size)] < 0) {
      throw ValueError(
          fmt::format("cache: cannot go back to {} tokens: their window of {} was given back",
                      seq_len, cache_->window(pool)));
    }
    for (; blocks.size() > keep; blocks.pop_back()) {
      if (blocks.back() >= 0) cache_->pool(pool).release(blocks.back());
    }
  }
  seq_len_ = seq_len;
}

}  // namespace kv
