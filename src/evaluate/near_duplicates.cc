#include "evaluate/near_duplicates.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>

#include "evaluate/index.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr size_t kShingle = 8;
constexpr size_t kHashes = 128, kBands = 32, kRows = kHashes / kBands;

/// Sets that are joined; each is named by its least member.
class Groups {
 public:
  explicit Groups(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  size_t find(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(size_t a, size_t b) {
    a = find(a), b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> parent_;
};

/// The different shingles of a text, hashed, ascending.
std::vector<uint64_t> shingles_of(std::span<const int32_t> text) {
  const size_t length = std::min(kShingle, text.size());
  std::vector<uint64_t> out;
  for (size_t i = 0; i + length <= text.size(); ++i) {
    uint64_t hash = length;
    for (size_t j = 0; j < length; ++j) hash = mix(hash + static_cast<uint32_t>(text[i + j]));
    out.push_back(hash);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::array<uint64_t, kHashes> signature_of(const std::vector<uint64_t>& shingles) {
  std::array<uint64_t, kHashes> least;
  least.fill(UINT64_MAX);
  for (const uint64_t shingle : shingles) {
    // Hash i is a multiply and shift of the shingle by an odd number of its own (Dietzfelbinger).
    for (size_t i = 0; i < kHashes; ++i) {
      const uint64_t hash = (shingle + i) * (0x9e3779b97f4a7c15u + 2 * i * 0xbf58476d1ce4e5b9u);
      least[i] = std::min(least[i], hash ^ hash >> 32);
    }
  }
  return least;
}

double jaccard(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  size_t shared = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) ++shared;
    const bool next_a = a[i] <= b[j], next_b = b[j] <= a[i];
    i += next_a;
    j += next_b;
  }
  const size_t all = a.size() + b.size() - shared;
  return all == 0 ? 1 : static_cast<double>(shared) / static_cast<double>(all);
}

uint64_t band_key(const std::array<uint64_t, kHashes>& signature, size_t band) {
  uint64_t key = band;
  for (size_t row = 0; row < kRows; ++row) key = mix(key ^ signature[band * kRows + row]);
  return key;
}

}  // namespace

std::vector<size_t> group_near_duplicates(std::span<const std::span<const int32_t>> texts) {
  std::vector<std::vector<uint64_t>> shingles;
  std::vector<std::array<uint64_t, kHashes>> signatures;
  for (const auto& text : texts) {
    shingles.push_back(shingles_of(text));
    signatures.push_back(signature_of(shingles.back()));
  }
  Groups groups(texts.size());
  for (size_t band = 0; band < kBands; ++band) {
    std::unordered_map<uint64_t, std::vector<size_t>> buckets;
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<size_t>& bucket = buckets[band_key(signatures[i], band)];
      for (const size_t other : bucket) {
        if (groups.find(other) == groups.find(i)) continue;
        if (jaccard(shingles[i], shingles[other]) >= kNearDuplicate) groups.join(i, other);
      }
      bucket.push_back(i);
    }
  }
  std::vector<size_t> out;
  for (size_t i = 0; i < texts.size(); ++i) out.push_back(groups.find(i));
  return out;
}

double shingle_similarity(std::span<const int32_t> a, std::span<const int32_t> b) {
  return jaccard(shingles_of(a), shingles_of(b));
}

int64_t assign_clusters(std::vector<Prompt>& prompts) {
  Groups groups(prompts.size());
  std::map<std::string, size_t> named;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].cluster.empty()) continue;
    groups.join(named.try_emplace(prompts[i].cluster, i).first->second, i);
  }
  std::vector<std::span<const int32_t>> texts;
  for (const Prompt& prompt : prompts) texts.emplace_back(prompt.tokens);
  const std::vector<size_t> alike = group_near_duplicates(texts);
  int64_t joined = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (groups.find(i) != groups.find(alike[i])) ++joined;
    groups.join(i, alike[i]);
  }
  std::vector<std::string> names(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::string& name = names[groups.find(i)];
    if (name.empty()) name = prompts[i].cluster.empty() ? prompts[i].id : prompts[i].cluster;
  }
  for (size_t i = 0; i < prompts.size(); ++i) prompts[i].cluster = names[groups.find(i)];
  return joined;
}

}  // namespace kv
