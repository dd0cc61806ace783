#include <fmt/format.h>

#include "kvscale/error.h"
#include "text/pipelines.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace kv {
namespace {

// GGUF v3, tokenizer.ggml.token_type.
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;

/// Splits as the original tokenizer of the family does, not as a GGUF reader has to guess.
void add_pipeline(TokenizerParts& parts, const std::string& pre) {
  const std::string where = parts.file_name + ": tokenizer.ggml.pre";
  if (pre == "smollm") {
    add_digits(parts, /*individual=*/true);
    add_byte_level(parts, /*adds_prefix_space=*/false, /*uses_regex=*/true);
  } else if (pre == "qwen2" || pre == "llama-bpe") {
    add_split(parts, pre == "qwen2" ? kQwen2Pattern : kLlama3Pattern, /*is_regex=*/true,
              SplitBehavior::kIsolated, /*is_inverted=*/false, where);
    add_byte_level(parts, /*adds_prefix_space=*/false, /*uses_regex=*/false);
    parts.normalizes_nfc = pre == "qwen2";
    parts.ignores_merges = pre == "llama-bpe";
  } else if (pre == "gpt-2" || pre == "default") {
    add_byte_level(parts, /*adds_prefix_space=*/false, /*uses_regex=*/true);
  } else {
    throw UnsupportedError(fmt::format(
        "{} = \"{}\" is not served; supported: smollm, qwen2, llama-bpe, gpt-2, default", where,
        pre));
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
  if (vocab.model != "gpt2") {
    throw UnsupportedError(fmt::format(
        "{}: tokenizer.ggml.model = \"{}\" is not served; supported: gpt2 (byte-level BPE)",
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
  add_pipeline(parts, vocab.pre);
  for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
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
  if (vocab.add_bos.value_or(vocab.pre == "llama-bpe")) {
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
