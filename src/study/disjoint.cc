#include "study/disjoint.h"

#include <fmt/core.h>

#include <functional>
#include <map>

#include "evaluate/near_duplicates.h"
#include "text/sha256.h"

namespace kv {
namespace {

std::string pair_text(const BlockExample& a, const BlockExample& b, const std::string& what) {
  return fmt::format("\"{}\" of block {} and \"{}\" of block {} {}", a.id, a.block, b.id, b.block,
                     what);
}

/// The first two examples of different blocks that have the same key; an empty key is no key.
std::string with_same_key(std::span<const BlockExample> examples,
                          const std::function<std::string(const BlockExample&)>& key_of,
                          const std::string& what) {
  std::map<std::string, const BlockExample*> first;
  for (const BlockExample& one : examples) {
    const std::string key = key_of(one);
    if (key.empty()) continue;
    const BlockExample& other = *first.try_emplace(key, &one).first->second;
    if (other.block != one.block) return pair_text(other, one, what);
  }
  return "";
}

std::string near_duplicates(std::span<const BlockExample> examples) {
  std::vector<std::span<const int32_t>> texts;
  for (const BlockExample& one : examples) texts.push_back(one.tokens);
  const std::vector<size_t> group = group_near_duplicates(texts);
  std::map<size_t, std::vector<const BlockExample*>> members;
  for (size_t i = 0; i < examples.size(); ++i) {
    // A group may be joined through others: only a pair counts.
    for (const BlockExample* other : members[group[i]]) {
      if (other->block == examples[i].block) continue;
      const double alike = shingle_similarity(other->tokens, examples[i].tokens);
      if (alike < kNearDuplicate) continue;
      return pair_text(
          *other, examples[i],
          fmt::format("are near-duplicates: {:.0f} % of their runs of 8 tokens are the "
                      "same (less than {:.0f} % are allowed)",
                      100 * alike, 100 * kNearDuplicate));
    }
    members[group[i]].push_back(&examples[i]);
  }
  return "";
}

}  // namespace

std::string shared_by_blocks(std::span<const BlockExample> examples) {
  const auto id = [](const BlockExample& one) { return one.id; };
  const auto cluster = [](const BlockExample& one) { return one.cluster; };
  const auto hash = [](const BlockExample& one) {
    return sha256_hex(
        {reinterpret_cast<const char*>(one.tokens.data()), one.tokens.size() * sizeof(int32_t)});
  };
  std::string out = with_same_key(examples, id, "have the same id");
  if (out.empty()) out = with_same_key(examples, hash, "are the same tokens");
  if (out.empty()) out = with_same_key(examples, cluster, "come from the same source");
  return out.empty() ? near_duplicates(examples) : out;
}

}  // namespace kv
