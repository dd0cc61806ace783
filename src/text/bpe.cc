#include "text/bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <tuple>

#include "text/utf8.h"

namespace kv {
namespace {

// Up to here scanning all ranks for each merge is faster than a heap.
constexpr size_t kShortWord = 64;

uint64_t hash_of(std::string_view word) {
  uint64_t hash = word.size() * 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < word.size(); i += 8) {
    uint64_t part = 0;
    std::memcpy(&part, word.data() + i, std::min<size_t>(8, word.size() - i));
    hash = (hash ^ part) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

MergeTable::MergeTable(size_t expected) {
  size_t size = 16;
  while (size * 3 < expected * 5) size *= 2;  // at most 60 % full
  slots_.resize(size);
  mask_ = size - 1;
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = slot_of(key);
  while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

Bpe::Cache::Cache() : slots_(kSlots) {}

void Bpe::encode_word(std::string_view word, Cache& cache, std::vector<int32_t>& out) const {
  if (word.size() <= Cache::kMaxBytes) return encode_cached(word, cache, out);
  // A whole text may be one word where nothing splits it.
  if (is_byte_level || !whole_words.empty()) return encode_uncached(word, out);
  for (size_t begin = 0; begin < word.size();) {
    const size_t length = run_length(word, begin);
    const std::string_view run = word.substr(begin, length);
    if (length <= Cache::kMaxBytes) {
      encode_cached(run, cache, out);
    } else {
      encode_uncached(run, out);
    }
    begin += length;
  }
}

size_t Bpe::run_length(std::string_view word, size_t begin) const {
  size_t at = begin;
  int32_t previous = -1;
  while (at < word.size()) {
    const CodePoint c = first_code_point(word.substr(at));
    const int32_t id = character_ids.find(c.value);
    const bool is_joint =
        previous < 0 || id < 0 || joints.find(previous, id).rank != MergeTable::kNoRank;
    if (!is_joint && at > begin) break;
    previous = id;
    at += c.size;
  }
  return at - begin;
}

void Bpe::encode_cached(std::string_view word, Cache& cache, std::vector<int32_t>& out) const {
  Cache::Slot& slot = cache.slots_[hash_of(word) % Cache::kSlots];
  if (slot.size == word.size() && std::memcmp(slot.bytes, word.data(), word.size()) == 0) {
    out.insert(out.end(), slot.ids, slot.ids + slot.num_ids);
    return;
  }
  const size_t begin = out.size();
  encode_uncached(word, out);
  const size_t num_ids = out.size() - begin;
  if (num_ids > Cache::kMaxIds) return;
  slot.size = static_cast<uint8_t>(word.size());
  slot.num_ids = static_cast<uint8_t>(num_ids);
  std::memcpy(slot.bytes, word.data(), word.size());
  std::copy(out.begin() + begin, out.end(), slot.ids);
}

void Bpe::encode_uncached(std::string_view word, std::vector<int32_t>& out) const {
  if (!whole_words.empty()) {
    const auto whole = whole_words.find(std::string(word));
    if (whole != whole_words.end()) return out.push_back(whole->second);
  }
  const size_t begin = out.size();
  if (is_byte_level) {
    append_byte_ids(word, out);
  } else {
    append_character_ids(word, out);
  }
  if (out.size() - begin <= kShortWord) {
    merge_short(out, begin);
  } else {
    merge_long(out, begin);
  }
  if (first_pseudo_id != INT32_MAX) spell_pseudo_ids(out, begin);
}

void Bpe::append_byte_ids(std::string_view word, std::vector<int32_t>& out) const {
  bool after_unk = false;
  for (const char c : word) {
    const int32_t id = byte_ids[static_cast<uint8_t>(c)];
    if (id >= 0) {
      out.push_back(id);
    } else if (unk_id && !(after_unk && fuses_unk)) {
      out.push_back(*unk_id);
    }
    after_unk = id < 0;
  }
}

bool Bpe::append_bytes_of(std::string_view character, std::vector<int32_t>& out) const {
  for (const char c : character) {
    if (byte_ids[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : character) out.push_back(byte_ids[static_cast<uint8_t>(c)]);
  return true;
}

void Bpe::append_character_ids(std::string_view word, std::vector<int32_t>& out) const {
  // As the peer does it, an unk stays pending until a known character, bytes or not.
  bool has_pending = false;
  while (!word.empty()) {
    const CodePoint c = first_code_point(word);
    const std::string_view character = word.substr(0, c.size);
    word.remove_prefix(c.size);
    const int32_t id = character_ids.find(c.value);
    if (id >= 0) {
      if (has_pending) out.push_back(*unk_id);
      has_pending = false;
      out.push_back(id);
    } else if (!append_bytes_of(character, out) && unk_id) {
      if (has_pending && !fuses_unk) out.push_back(*unk_id);
      has_pending = true;
    }
  }
  if (has_pending) out.push_back(*unk_id);
}

void Bpe::spell_pseudo_ids(std::vector<int32_t>& ids, size_t begin) const {
  const auto is_pseudo = [&](int32_t id) { return id >= first_pseudo_id; };
  if (std::none_of(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), is_pseudo)) return;
  const std::vector<int32_t> merged(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
  ids.resize(begin);
  for (const int32_t id : merged) {
    if (!is_pseudo(id)) {
      ids.push_back(id);
    } else if (!append_bytes_of(pseudo_characters[id - first_pseudo_id], ids) && unk_id) {
      ids.push_back(*unk_id);
    }
  }
}

void Bpe::merge_short(std::vector<int32_t>& ids, size_t begin) const {
  size_t n = ids.size() - begin;
  int32_t* id = ids.data() + begin;
  MergeTable::Merge pair[kShortWord];  // pair[i]: id[i] with id[i + 1]
  for (size_t i = 0; i + 1 < n; ++i) pair[i] = merges.find(id[i], id[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pair[i].rank < pair[best].rank) best = i;
    }
    if (pair[best].rank == MergeTable::kNoRank) break;
    id[best] = pair[best].result;
    std::copy(id + best + 2, id + n, id + best + 1);
    std::copy(pair + best + 1, pair + n - 1, pair + best);
    --n;
    if (best > 0) pair[best - 1] = merges.find(id[best - 1], id[best]);
    if (best + 1 < n) pair[best] = merges.find(id[best], id[best + 1]);
  }
  ids.resize(begin + n);
}

void Bpe::merge_long(std::vector<int32_t>& ids, size_t begin) const {
  const size_t n = ids.size() - begin;
  int32_t* id = ids.data() + begin;  // -1: merged into the one before
  std::vector<size_t> next(n), previous(n);
  using Candidate = std::tuple<uint32_t, size_t, int32_t, int32_t>;  // rank, position, left, right
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](size_t left, size_t right) {
    const uint32_t rank = merges.find(id[left], id[right]).rank;
    if (rank != MergeTable::kNoRank) queue.emplace(rank, left, id[left], id[right]);
  };
  for (size_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (i + 1 < n) offer(i, i + 1);
  }
  while (!queue.empty()) {
    const auto [rank, left, left_id, right_id] = queue.top();
    queue.pop();
    const size_t right = next[left];
    // Stale: one of the two has merged with another neighbour since.
    if (id[left] != left_id || right == n || id[right] != right_id) continue;
    id[left] = merges.find(left_id, right_id).result;
    id[right] = -1;
    next[left] = next[right];
    if (next[left] < n) {
      previous[next[left]] = left;
      offer(left, next[left]);
    }
    if (left > 0) offer(previous[left], left);
  }
  ids.erase(std::remove(ids.begin() + begin, ids.end(), -1), ids.end());
}

}  // namespace kv
