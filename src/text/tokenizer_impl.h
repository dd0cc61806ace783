#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace kv {

/// The two merged tokens as the file spells them.
struct MergeRule {
  std::string left, right;
};

/// What the readers of tokenizer.json and GGUF agree on: a vocabulary and a pipeline.
struct TokenizerParts {
  std::string file_name;
  std::vector<std::string> tokens;  // as spelled; id = position; empty: no such id
  std::vector<MergeRule> merges;    // rank = position
  std::vector<AddedToken> added;
  // GGUF's "llama": any two neighbours merge whose text is a token, best score first; no merges.
  // Tokens without a score do not take part.
  std::vector<std::optional<float>> scores;
  std::vector<NormalizerStep> normalizers;
  std::vector<SplitStep> steps;
  std::vector<DecoderStep> decoder;
  std::string pipeline;         // what else changes the ids, in words: part of the fingerprint
  bool normalizes_nfc = false;  // before all else
  bool is_byte_level = false;   // the steps end in ByteLevel
  bool byte_fallback = false;
  bool ignores_merges = false;
  std::optional<std::string> unk_token;
  bool fuses_unk = false;
  std::vector<int32_t> prefix_ids, suffix_ids;
  std::optional<int32_t> bos_id, eos_id;
};

/// Immutable after construction but for the pool of working memory.
struct Tokenizer::Impl {
  /// Throws FormatError when parts contradict each other (a merge of unknown tokens, ...).
  explicit Impl(TokenizerParts parts);

  std::string file_name;
  std::vector<std::string> tokens;
  std::vector<std::string> bytes;  // what each id decodes to
  std::unordered_map<std::string_view, int32_t> id_of;
  std::vector<bool> is_special;
  AddedTokenMatcher raw_added, normalized_added;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  Normalizer normalizer;
  Decoder decoder;
  std::vector<int32_t> prefix_ids, suffix_ids;
  std::optional<int32_t> bos_id, eos_id;
  std::string fingerprint;

  /// What one call of encode needs for itself.
  struct Scratch {
    Normalizer::Matchers normalizer_matchers;
    PreTokenizer::Matchers matchers;
    Bpe::Cache cache;
  };
  std::unique_ptr<Scratch> take_scratch() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;

  /// Throws ValueError when no id has this value.
  void check_id(int32_t id) const;
  /// `is_first`: nothing comes before `text`.
  void encode_piece(std::string_view text, bool is_first, Scratch& scratch,
                    std::vector<int32_t>& out) const;

 private:
  void index_tokens(const TokenizerParts& parts);
  /// One token's place in the byte or character tables.
  void index_token(int32_t id, const TokenizerParts& parts);
  void build_merges(const TokenizerParts& parts);
  void build_scored_merges(const TokenizerParts& parts);
  void build_joints(const TokenizerParts& parts);
  /// The id of a token or of a character that is none.
  int32_t symbol_id(std::string_view text);
  void build_added(const TokenizerParts& parts);
  /// Throws FormatError naming `field`, or `field[index]`, when there is no such token.
  int32_t id_or_throw(std::string_view token, std::string_view field,
                      std::optional<size_t> index) const;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> pool_;
};

}  // namespace kv
