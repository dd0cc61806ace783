#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace kv {

/// What one layer caches of each token.
struct CachedLayer {
  int num_kv_heads = 0;
  int head_dim = 0;
  int window = 0;         // tokens that it keeps; 0 = all
  int latent_values = 0;  // MLA: one vector of head_dim values, of which V is the first so many
};

/// The cache of a model by its config.json alone, weights and architecture whatever they are.
struct CachedLayers {
  std::vector<CachedLayer> layers;  // those that cache of their own
  int max_positions = 0;            // 0 = not said
  // Layers that keep a recurrent state instead, and what these take of each sequence, whatever its
  // length: the state in F32, the convolution's last inputs in BF16.
  int state_layers = 0;
  int64_t state_bytes = 0;
};

/// Whether a folder's config.json is of an architecture that only the cache is known of here.
bool is_only_plannable(const std::filesystem::path& folder);

/// Throws FormatError for a size that is missing or out of range, UnsupportedError naming the field
/// for layers that cache anything but keys and values per head or a latent (an indexer's keys) or
/// keep a recurrent state of another kind than linear_attention, and for a window where layer_types
/// does not say which layers have it. Full-attention layers may have head sizes and KV heads of
/// their own (global_head_dim, num_global_key_value_heads).
CachedLayers read_cached_layers(const std::filesystem::path& folder);

}  // namespace kv
