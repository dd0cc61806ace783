#include <fmt/core.h>

#include <algorithm>

#include "cuda/prefill.h"
#include "kvscale/error.h"

namespace kv::cuda {

std::vector<PrefillTile> plan_prefill(std::span<const PrefillSequence> sequences, int num_kv_heads,
                                      int q_per_kv) {
  if (q_per_kv < 1 || q_per_kv > 16) {
    throw UnsupportedError(
        fmt::format("attend: cuda supports 1 to 16 query heads per KV head, needed {}", q_per_kv));
  }
  const int step = kPrefillRows / q_per_kv;
  std::vector<PrefillTile> tiles;
  for (const PrefillSequence& s : sequences) {
    for (int first = 0; first < s.num_queries; first += step) {
      for (int head = 0; head < num_kv_heads; ++head) {
        tiles.push_back({s.seq, head, s.query_row + first, std::min(step, s.num_queries - first),
                         s.seq_len - s.num_queries + first});
      }
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(), [](const PrefillTile& a, const PrefillTile& b) {
    return a.position + a.num_tokens > b.position + b.num_tokens;
  });
  return tiles;
}

}  // namespace kv::cuda
