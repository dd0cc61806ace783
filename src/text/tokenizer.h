#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// What a GGUF v3 file says about its tokenizer (keys `tokenizer.ggml.*`), as the reader found it.
struct GgufVocab {
  std::string file_name;            // for messages
  std::string model;                // .model; "gpt2" = byte-level BPE, "llama" = SentencePiece
  std::string pre;                  // .pre of gpt2; smollm, qwen2, llama-bpe, gpt-2 or default
  std::vector<std::string> tokens;  // .tokens; id = position
  std::vector<int32_t> types;  // .token_type, one per token: 1 normal, 2 unknown, 3 control, 4 user
                               // defined, 5 unused, 6 byte
  std::vector<std::string> merges;       // .merges of gpt2, "a b"; rank = position
  std::vector<float> scores;             // .scores of llama, one per token
  std::optional<int32_t> bos_id;         // .bos_token_id
  std::optional<int32_t> eos_id;         // .eos_token_id
  std::optional<int32_t> unk_id;         // .unknown_token_id; only SentencePiece emits it
  std::optional<int32_t> pad_id;         // .padding_token_id
  std::optional<bool> add_bos;           // .add_bos_token; absent: true for llama and llama-bpe
  std::optional<bool> add_eos;           // .add_eos_token; absent: false
  std::optional<bool> add_space_prefix;  // .add_space_prefix of llama; absent: true
};

/// A BPE tokenizer over bytes or characters: text to token ids and back, equal to what the
/// `tokenizers` package computes from the same tokenizer.json.
///
/// Cheap to copy; all const methods may be called from several threads at once.
class Tokenizer {
 public:
  /// Reads a Hugging Face tokenizer.json. `file_name` is used in messages. Throws FormatError when
  /// the text breaks the format, UnsupportedError naming field and value for a component that
  /// is not served (Unigram, WordPiece, Precompiled, ...).
  static Tokenizer from_tokenizer_json(std::string_view json, std::string file_name);

  /// Builds the pipeline that `pre` names over the vocabulary of a GGUF file. Throws FormatError,
  /// UnsupportedError (another model or `pre`, by name).
  static Tokenizer from_gguf(GgufVocab vocab);

  /// Text to ids. Ill-formed UTF-8 becomes U+FFFD first, one per maximal subpart. Added tokens are
  /// recognised in the text. `add_special` adds what the file's template adds (BOS); leave it off
  /// for text that a chat template rendered, since such text spells its own BOS.
  std::vector<int32_t> encode(std::string_view text, bool add_special = true) const;

  /// Ids to well-formed UTF-8 text (U+FFFD where the bytes are not). Throws ValueError for an id
  /// outside the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  /// The raw bytes that one id stands for, which may be part of a character (streaming). The view
  /// lives as long as the tokenizer. Throws ValueError as decode does.
  std::string_view token_bytes(int32_t id) const;

  /// One more than the largest id.
  int32_t vocab_size() const;

  /// The id of a token as the file spells it ("<|im_start|>", "Ġthe").
  std::optional<int32_t> token_id(std::string_view content) const;

  /// How the file spells an id; empty for an id inside the range that no token has. Throws
  /// ValueError outside the range.
  std::string_view token(int32_t id) const;

  /// Whether decode(..., skip_special = true) leaves this id out.
  bool is_special(int32_t id) const;

  /// From a GGUF file: its ids. From tokenizer.json: nullopt (config.json and
  /// generation_config.json say them).
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

  /// Ids that encode(text, add_special = true) puts before and after the text: at most one BOS in
  /// practice. Part of the provenance of calibration and evaluation.
  std::span<const int32_t> prefix_ids() const;
  std::span<const int32_t> suffix_ids() const;

  /// SHA-256 in hexadecimal over all that decides the ids (vocabulary, merges, pipeline, template):
  /// two runs with the same one cut text the same way.
  const std::string& fingerprint() const;

  struct Impl;

 private:
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace kv
