#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cache/layout.h"
#include "model/tap.h"

namespace kv {

/// Largest finite magnitude of what the cache stores, per layer, side and KV head: after norm and
/// RoPE, of the tokens that were fed and of nothing else. Does not depend on order, batch or
/// chunking.
class AmaxObserver : public AttentionObserver {
 public:
  struct Head {
    float amax = 0;
    int64_t non_finite = 0;
  };

  AmaxObserver(int64_t num_layers, int64_t num_kv_heads);

  void on_attention(const AttentionTap& tap) override;

  int64_t num_layers() const { return num_layers_; }
  int64_t num_kv_heads() const { return num_kv_heads_; }
  const Head& head(int64_t layer, Side side, int64_t head) const {
    return heads_[index(layer, side, head)];
  }

  /// Tokens seen by a layer.
  int64_t tokens(int64_t layer) const { return tokens_[static_cast<size_t>(layer)]; }

  /// amax of all, [layer][side][head].
  std::vector<float> amax() const;

  /// Forgets what was seen: the next example begins.
  void reset();

 private:
  size_t index(int64_t layer, Side side, int64_t head) const {
    return static_cast<size_t>((layer * 2 + static_cast<int64_t>(side)) * num_kv_heads_ + head);
  }

  int64_t num_layers_, num_kv_heads_;
  std::vector<Head> heads_;
  std::vector<int64_t> tokens_;
  std::vector<float> wide_;
};

}  // namespace kv
