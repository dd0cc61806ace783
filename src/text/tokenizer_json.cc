#include <fmt/format.h>

#include <unordered_map>

#include "kvscale/error.h"
#include "text/component_reader.h"
#include "text/json_fields.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace kv {
namespace {

using nlohmann::json;

MergeRule read_merge(const JsonField& field) {
  if (field.value().is_string()) {  // the older spelling
    const std::string& text = field.as_string();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      throw FormatError(
          fmt::format("{}: expected two tokens and one space, found \"{}\"", field.path(), text));
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  if (field.array_size() != 2) field.throw_expected("an array of two tokens");
  return {field.at(size_t{0}).as_string(), field.at(size_t{1}).as_string()};
}

bool is_version_line(const json& merge) {
  return merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
}

/// Puts `token` at `id`; the vocabulary may have small holes, no large ones.
void place_token(TokenizerParts& parts, const JsonField& field, int32_t id,
                 const std::string& token, size_t num_tokens) {
  const size_t limit = 2 * num_tokens + 65536;
  if (static_cast<size_t>(id) >= limit) {
    throw FormatError(
        fmt::format("{}: \"{}\": expected an id below {} for a vocabulary of {}, "
                    "found {}",
                    field.path(), token, limit, num_tokens, id));
  }
  if (static_cast<size_t>(id) >= parts.tokens.size()) parts.tokens.resize(id + 1);
  if (!parts.tokens[id].empty()) {
    throw FormatError(fmt::format("{}: id {} has two tokens, \"{}\" and \"{}\"", field.path(), id,
                                  parts.tokens[id], token));
  }
  parts.tokens[id] = token;
}

void refuse_flag(const JsonField& model, const std::string& key) {
  const JsonField field = model.get(key);
  const json& value = field.value();
  const bool is_off = value.is_null() || value == false || value == 0 || value == "";
  if (!is_off) refuse_component(field, value.dump(), "none");
}

void read_model(const JsonField& model, TokenizerParts& parts) {
  // Files of the first years have no type.
  const JsonField type = model.get("type");
  if (!type.is_null() && type.as_string() != "BPE") refuse_component(type, type.as_string(), "BPE");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    refuse_flag(model, key);
  }
  parts.byte_fallback = model.bool_or("byte_fallback", false);
  parts.ignores_merges = model.bool_or("ignore_merges", false);
  parts.fuses_unk = model.bool_or("fuse_unk", false);
  const JsonField unk = model.get("unk_token");
  if (!unk.is_null()) parts.unk_token = unk.as_string();
  const JsonField vocab = model.at("vocab");
  vocab.expect_object();
  for (const auto& [token, id] : vocab.value().items()) {
    if (token.empty()) continue;  // no text can give it
    const JsonField entry(id, vocab.path());
    place_token(parts, entry, entry.as_id(), token, vocab.value().size());
  }
  const JsonField merges = model.at("merges");
  for (size_t i = 0; i < merges.array_size(); ++i) {
    if (!is_version_line(merges.value()[i])) parts.merges.push_back(read_merge(merges.at(i)));
  }
}

AddedToken read_added_token(const JsonField& field) {
  AddedToken token;
  token.id = field.at("id").as_id();
  token.content = field.at("content").as_string();
  token.is_special = field.at("special").as_bool();
  token.is_single_word = field.at("single_word").as_bool();
  token.strips_left = field.at("lstrip").as_bool();
  token.strips_right = field.at("rstrip").as_bool();
  token.is_normalized = field.at("normalized").as_bool();
  return token;
}

/// An added token keeps the id it has in the vocabulary; one that is not in it gets the next number
/// after the vocabulary's size. The `tokenizers` package ignores ids that say otherwise, so they
/// would mean one thing there and another here: an error.
void read_added_tokens(const JsonField& list, size_t vocab_size, TokenizerParts& parts) {
  if (list.is_null()) return;
  std::unordered_map<std::string, int32_t> id_of;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    id_of.emplace(parts.tokens[id], static_cast<int32_t>(id));
  }
  auto next = static_cast<int32_t>(vocab_size);
  const size_t num_tokens = vocab_size + list.array_size();
  for (size_t i = 0; i < list.array_size(); ++i) {
    const JsonField field = list.at(i);
    const AddedToken token = read_added_token(field);
    if (token.content.empty()) continue;
    const auto known = id_of.find(token.content);
    const int32_t expected = known != id_of.end() ? known->second : next;
    if (token.id != expected) {
      throw FormatError(fmt::format(
          "{}.id: \"{}\": expected {} ({}), found {}", field.path(), token.content, expected,
          known != id_of.end() ? "from the vocabulary" : "the next one", token.id));
    }
    if (known == id_of.end()) {
      place_token(parts, field, token.id, token.content, num_tokens);
      id_of.emplace(token.content, token.id);
      ++next;
    }
    parts.added.push_back(token);
  }
}

void read_template(const JsonField& field, TokenizerParts& parts) {
  const JsonField pieces = field.at("single");
  const JsonField special = field.at("special_tokens");
  bool after_text = false;
  for (size_t i = 0; i < pieces.array_size(); ++i) {
    const JsonField piece = pieces.at(i);
    if (!piece.get("Sequence").is_null()) {
      if (after_text) refuse_component(piece, "Sequence", "one Sequence in a template");
      after_text = true;
      continue;
    }
    const JsonField ids = special.at(piece.at("SpecialToken").at("id").as_string()).at("ids");
    for (size_t k = 0; k < ids.array_size(); ++k) {
      (after_text ? parts.suffix_ids : parts.prefix_ids).push_back(ids.at(k).as_id());
    }
  }
  if (!after_text) refuse_component(pieces, "no Sequence", "one Sequence in a template");
}

void read_post_processor(const JsonField& field, TokenizerParts& parts) {
  if (field.is_null()) return;
  const std::string& type = type_of(field);
  if (type == "TemplateProcessing") {
    if (!parts.prefix_ids.empty() || !parts.suffix_ids.empty()) {
      refuse_component(field, "a second TemplateProcessing", "one");
    }
    read_template(field, parts);
  } else if (type == "Sequence") {
    const JsonField list = field.at("processors");
    for (size_t i = 0; i < list.array_size(); ++i) read_post_processor(list.at(i), parts);
  } else if (type != "ByteLevel") {  // ByteLevel only moves offsets
    refuse_component(field, type, "ByteLevel, TemplateProcessing, Sequence");
  }
}

json parse(std::string_view text, const std::string& file_name) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw FormatError(fmt::format("{}: not JSON: {}", file_name, error.what()));
  }
}

}  // namespace

Tokenizer Tokenizer::from_tokenizer_json(std::string_view text, std::string file_name) {
  const json document = parse(text, file_name);
  const JsonField root(document, file_name);
  TokenizerParts parts;
  parts.file_name = std::move(file_name);
  // "truncation" and "padding" are settings of the last call that the writer of the file made; no
  // engine follows them, and neither do we.
  read_normalizer(root.get("normalizer"), parts);
  read_pre_tokenizer(root.get("pre_tokenizer"), parts);
  read_model(root.at("model"), parts);
  read_added_tokens(root.get("added_tokens"), root.at("model").at("vocab").value().size(), parts);
  read_post_processor(root.get("post_processor"), parts);
  read_decoder(root.get("decoder"), parts);
  return Tokenizer(std::make_shared<const Impl>(std::move(parts)));
}

}  // namespace kv
