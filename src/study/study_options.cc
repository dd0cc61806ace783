#include "study/study_options.h"

#include <algorithm>

namespace kv {

std::vector<int64_t> default_buckets(std::span<const Prompt> prompts, bool own_text,
                                     const ModelSpec& model) {
  int64_t longest = 2048, shortest = 512;
  if (!own_text) {
    const auto length = [](const Prompt& p) { return std::ssize(p.tokens); };
    longest = length(*std::ranges::max_element(prompts, {}, length));
    shortest = length(*std::ranges::min_element(prompts, {}, length));
  }
  std::vector<int64_t> out;
  for (int64_t edge = 256; edge <= model.max_positions; edge *= 2) {
    const bool reached = edge >= shortest && edge / 2 < longest;
    if (reached) out.push_back(edge);
    if (edge >= longest) break;
  }
  if (out.empty()) out.push_back(std::min<int64_t>(256, model.max_positions));
  return out;
}

}  // namespace kv
