#include <fmt/format.h>

#include <cmath>

#include "kvscale/error.h"
#include "text/pipelines.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace kv {
namespace {

// GGUF v3, tokenizer.ggml.token_type.
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kByte = 6;

/// Splits as the original tokenizer of the family does, not as a GGUF reader has to guess.
void add_byte_level_pipeline(TokenizerParts& parts, const std::string& pre) {
  const std::string where = parts.file_name + ": tokenizer.ggml.pre";
  if (pre == "smollm") {
    add_digits(parts, /*individual=*/true);
    add_byte_level(parts, /*adds_prefix_space=*/false, /*uses_regex=*/true);
  } else if (pre == "qwen2" || pre == "llama-bpe") {
    add_split(parts, pre == "qwen2" ? kQwen2Pattern : kLlama3Pattern, /*is_regex=*/true,
              SplitBehavior::kIsolated, /*is_inverted=*/false, where);
    add_byte_level(parts, /*adds_prefix_space=*/false, /*uses_regex=*/false);
    if (pre == "qwen2") add_normalizer(parts, NormalizerStep(), "NFC");
    parts.ignores_merges = pre == "llama-bpe";
  } else if (pre == "gpt-2" || pre == "default") {
    add_byte_level(parts, /*adds_prefix_space=*/false, /*uses_regex=*/true);
  } else {
    throw UnsupportedError(fmt::format(
        "{} = \"{}\" is not served; supported: smollm, qwen2, llama-bpe, gpt-2, default", where,
        pre));
  }
  parts.decoder.emplace_back();
}

/// SentencePiece's tokens that merge: all but control, unknown and byte tokens.
void add_scores(TokenizerParts& parts, const GgufVocab& vocab) {
  if (vocab.scores.size() != vocab.tokens.size()) {
    throw FormatError(fmt::format(
        "{}: tokenizer.ggml.scores: expected {} entries (tokenizer.ggml.tokens), found {}",
        vocab.file_name, vocab.tokens.size(), vocab.scores.size()));
  }
  parts.pipeline += "scores";
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const int32_t type = vocab.types[id];
    const float score = vocab.scores[id];
    if (std::isnan(score)) {
      throw FormatError(fmt::format("{}: tokenizer.ggml.scores[{}]: expected a number, found NaN",
                                    vocab.file_name, id));
    }
    const bool merges = type != kUnknown && type != kControl && type != kByte;
    parts.scores.push_back(merges ? std::optional(score) : std::nullopt);
    // Only their order counts, but all of it is part of what decides the ids.
    parts.pipeline += merges ? fmt::format(" {}", score) : " -";
  }
  parts.pipeline += "; ";
}

void add_sentencepiece_pipeline(TokenizerParts& parts, const GgufVocab& vocab) {
  add_sentencepiece(parts, vocab.add_space_prefix.value_or(true));
  add_scores(parts, vocab);
  parts.byte_fallback = true;
  parts.fuses_unk = true;
  if (vocab.unk_id && static_cast<size_t>(*vocab.unk_id) < vocab.tokens.size()) {
    parts.unk_token = vocab.tokens[*vocab.unk_id];
  }
}

MergeRule parse_merge(const std::string& merge, size_t rank, const std::string& file_name) {
  const size_t space = merge.find(' ');
  if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
    throw FormatError(fmt::format(
        "{}: tokenizer.ggml.merges[{}]: expected two tokens and one space, found \"{}\"", file_name,
        rank, merge));
  }
  return {merge.substr(0, space), merge.substr(space + 1)};
}

void check(const GgufVocab& vocab) {
  if (vocab.model != "gpt2" && vocab.model != "llama") {
    throw UnsupportedError(
        fmt::format("{}: tokenizer.ggml.model = \"{}\" is not served; supported: gpt2 (byte-level "
                    "BPE), llama (SentencePiece)",
                    vocab.file_name, vocab.model));
  }
  if (vocab.types.size() != vocab.tokens.size()) {
    throw FormatError(fmt::format(
        "{}: tokenizer.ggml.token_type: expected {} entries (tokenizer.ggml.tokens), found {}",
        vocab.file_name, vocab.tokens.size(), vocab.types.size()));
  }
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (well_formed_prefix(vocab.tokens[id]) != vocab.tokens[id].size()) {
      throw FormatError(
          fmt::format("{}: tokenizer.ggml.tokens[{}] is not UTF-8", vocab.file_name, id));
    }
  }
}

int32_t expect_id(std::optional<int32_t> id, const GgufVocab& vocab, std::string_view key) {
  if (id) return *id;
  throw FormatError(
      fmt::format("{}: tokenizer.ggml.{}_token_id is missing, but the file asks "
                  "for this token around every text",
                  vocab.file_name, key));
}

}  // namespace

Tokenizer Tokenizer::from_gguf(GgufVocab vocab) {
  check(vocab);
  TokenizerParts parts;
  parts.file_name = vocab.file_name;
  const bool is_sentencepiece = vocab.model == "llama";
  if (is_sentencepiece) {
    add_sentencepiece_pipeline(parts, vocab);
  } else {
    add_byte_level_pipeline(parts, vocab.pre);
  }
  for (size_t rank = 0; !is_sentencepiece && rank < vocab.merges.size(); ++rank) {
    parts.merges.push_back(parse_merge(vocab.merges[rank], rank, vocab.file_name));
  }
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.types[id] != kControl && vocab.types[id] != kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = vocab.tokens[id];
    token.is_special = vocab.types[id] == kControl;
    parts.added.push_back(token);
  }
  // Files of this family rely on it when the key is absent.
  if (vocab.add_bos.value_or(is_sentencepiece || vocab.pre == "llama-bpe")) {
    parts.prefix_ids = {expect_id(vocab.bos_id, vocab, "bos")};
  }
  if (vocab.add_eos.value_or(false)) {
    parts.suffix_ids = {expect_id(vocab.eos_id, vocab, "eos")};
  }
  parts.bos_id = vocab.bos_id;
  parts.eos_id = vocab.eos_id;
  parts.tokens = std::move(vocab.tokens);
  return Tokenizer(std::make_shared<const Impl>(std::move(parts)));
}

}  // namespace kv
