#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/character_ids.h"

namespace kv {

/// Rank and result of merging a pair of ids; an open hash table.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t result = -1;
  };

  explicit MergeTable(size_t expected = 0);

  /// A later merge of the same pair replaces the earlier one. At most `expected` pairs.
  void insert(int32_t left, int32_t right, Merge merge);

  /// rank = kNoRank: the pair does not merge.
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;  // no pair: ids are not negative
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u >> 20) & mask_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

/// Byte pair encoding of words over bytes, or over characters: repeatedly merges the neighbouring
/// pair of lowest rank, the leftmost of equals.
class Bpe {
 public:
  /// Remembers the ids of short words, one word a slot, the newer one stays. One per thread.
  class Cache {
   public:
    Cache();

   private:
    friend class Bpe;
    static constexpr size_t kSlots = 1 << 14;
    static constexpr size_t kMaxBytes = 24;
    static constexpr size_t kMaxIds = 8;
    struct Slot {
      uint8_t size = 0;  // bytes; 0: free
      uint8_t num_ids = 0;
      char bytes[kMaxBytes];
      int32_t ids[kMaxIds];
    };
    std::vector<Slot> slots_;
  };

  Bpe() { byte_ids.fill(-1); }

  bool is_byte_level = true;
  // Over bytes: their ids. Over characters: what spells a character that has no id, if all its
  // bytes have one. -1: the vocabulary lacks this byte.
  std::array<int32_t, 256> byte_ids;
  CharacterIds character_ids;  // over characters
  MergeTable merges;
  // Over characters: every pair of them, as ids, that some merge joins. Between others a word can
  // be cut: nothing reaches over.
  MergeTable joints;
  // Ids from here on are of characters that only occur within tokens: they merge, and are spelled
  // in bytes where they did not.
  int32_t first_pseudo_id = INT32_MAX;
  std::vector<std::string> pseudo_characters;
  std::optional<int32_t>
      unk_id;              // stands for what is missing; none: it is left out, as the peer does
  bool fuses_unk = false;  // one unk for a run of it
  // ignore_merges: words that are whole tokens and need no merging. Empty otherwise.
  std::unordered_map<std::string, int32_t> whole_words;

  /// Appends the ids of a word (raw bytes, any length). n log n for long words.
  void encode_word(std::string_view word, Cache& cache, std::vector<int32_t>& out) const;

 private:
  void encode_cached(std::string_view word, Cache& cache, std::vector<int32_t>& out) const;
  void encode_uncached(std::string_view word, std::vector<int32_t>& out) const;
  /// Bytes of the word from `begin` on up to where it can be cut.
  size_t run_length(std::string_view word, size_t begin) const;
  void append_byte_ids(std::string_view word, std::vector<int32_t>& out) const;
  void append_character_ids(std::string_view word, std::vector<int32_t>& out) const;
  bool append_bytes_of(std::string_view character, std::vector<int32_t>& out) const;
  void spell_pseudo_ids(std::vector<int32_t>& ids, size_t begin) const;
  void merge_short(std::vector<int32_t>& ids, size_t begin) const;
  void merge_long(std::vector<int32_t>& ids, size_t begin) const;
};

}  // namespace kv
