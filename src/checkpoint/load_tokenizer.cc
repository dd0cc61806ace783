#include "checkpoint/load_tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/gguf_file.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

std::optional<int32_t> token_id(const GgufFile& gguf, std::string_view key) {
  const std::optional<int64_t> id = gguf.metadata().integer(key);
  if (!id) return std::nullopt;
  return expect_within(kTokenRange, *id, gguf.file_name(), key);
}

GgufVocab read_vocab(const GgufFile& gguf) {
  const GgufMetadata& metadata = gguf.metadata();
  GgufVocab vocab;
  vocab.file_name = gguf.file_name();
  vocab.model = metadata.text("tokenizer.ggml.model").value_or("");
  vocab.pre = metadata.text("tokenizer.ggml.pre").value_or("default");
  vocab.tokens = metadata.texts("tokenizer.ggml.tokens");
  for (const int64_t type : metadata.integers("tokenizer.ggml.token_type")) {
    // Types are 1 to 6; what no int32 holds is none of them either.
    vocab.types.push_back(
        expect_within({std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()},
                      type, vocab.file_name, "tokenizer.ggml.token_type"));
  }
  vocab.scores = metadata.numbers("tokenizer.ggml.scores");
  vocab.add_space_prefix = metadata.boolean("tokenizer.ggml.add_space_prefix");
  vocab.merges = metadata.texts("tokenizer.ggml.merges");
  vocab.bos_id = token_id(gguf, "tokenizer.ggml.bos_token_id");
  vocab.eos_id = token_id(gguf, "tokenizer.ggml.eos_token_id");
  vocab.unk_id = token_id(gguf, "tokenizer.ggml.unknown_token_id");
  vocab.pad_id = token_id(gguf, "tokenizer.ggml.padding_token_id");
  vocab.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token");
  vocab.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token");
  return vocab;
}

Tokenizer read_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return Tokenizer::from_gguf(read_vocab(*checkpoint.gguf()));
  const std::filesystem::path path = checkpoint.folder() / "tokenizer.json";
  return Tokenizer::from_tokenizer_json(read_text_file(path), "tokenizer.json");
}

}  // namespace

namespace {

SpecialTokens special_tokens_of(const GgufFile& gguf, const Tokenizer& tokenizer) {
  SpecialTokens out;
  for (const auto& [name, key] : {std::pair{"bos_token", "bos"},
                                  {"eos_token", "eos"},
                                  {"unk_token", "unknown"},
                                  {"pad_token", "padding"}}) {
    const auto id = token_id(gguf, fmt::format("tokenizer.ggml.{}_token_id", key));
    if (id) out[name] = tokenizer.token(*id);
  }
  return out;
}

}  // namespace

SpecialTokens load_special_tokens(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  if (checkpoint.gguf() != nullptr) return special_tokens_of(*checkpoint.gguf(), tokenizer);
  const std::string file = "tokenizer_config.json";
  SpecialTokens out;
  if (!std::filesystem::exists(checkpoint.folder() / file)) return out;
  const nlohmann::json json = parse_json(read_text_file(checkpoint.folder() / file), file);
  const JsonFields fields(json, file);
  for (const std::string name : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                                 "cls_token", "mask_token"}) {
    const nlohmann::json* value = fields.find(name);
    if (value == nullptr) continue;
    if (value->is_object() && value->contains("content")) value = &value->at("content");
    if (!value->is_string()) fields.fail(name, "a string, or an object with \"content\"");
    out[name] = value->get<std::string>();
  }
  return out;
}

Tokenizer load_tokenizer(const Checkpoint& checkpoint) {
  Tokenizer tokenizer = read_tokenizer(checkpoint);
  if (tokenizer.vocab_size() <= checkpoint.spec().vocab_size) return tokenizer;
  throw FormatError(fmt::format("{}: the tokenizer has ids up to {}, the embedding {} rows",
                                checkpoint.path().string(), tokenizer.vocab_size() - 1,
                                checkpoint.spec().vocab_size));
}

}  // namespace kv
