// From the parts of a tokenizer to the tables that encode: ids by token, bytes and characters,
// merges.
#include <fmt/format.h>

#include <algorithm>

#include "kvscale/error.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace kv {

void Tokenizer::Impl::index_tokens(const TokenizerParts& parts) {
  bpe.is_byte_level = parts.is_byte_level;
  id_of.reserve(tokens.size());
  bytes.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    bytes.push_back(decoder.bytes_of(tokens[i]));
    if (tokens[i].empty()) continue;
    const auto [at, is_new] = id_of.emplace(tokens[i], id);
    if (!is_new) {
      throw FormatError(fmt::format("{}: token \"{}\" has two ids, {} and {}", file_name, tokens[i],
                                    at->second, id));
    }
    index_token(id, parts);
  }
  const bool lacks_bytes =
      std::find(bpe.byte_ids.begin(), bpe.byte_ids.end(), -1) != bpe.byte_ids.end();
  if (parts.is_byte_level && parts.byte_fallback && lacks_bytes) {
    throw UnsupportedError(fmt::format(
        "{}: model.byte_fallback with ByteLevel over a vocabulary without some bytes is not served",
        file_name));
  }
}

void Tokenizer::Impl::index_token(int32_t id, const TokenizerParts& parts) {
  const std::string& token = tokens[id];
  if (parts.is_byte_level) {
    const std::optional<std::string> spelled = spelled_bytes(token);
    if (!spelled) return;
    if (spelled->size() == 1) bpe.byte_ids[static_cast<uint8_t>((*spelled)[0])] = id;
    if (parts.ignores_merges) bpe.whole_words.emplace(*spelled, id);
    return;
  }
  const bool takes_part = parts.scores.empty() || parts.scores[id].has_value();
  const CodePoint first = first_code_point(token);
  if (takes_part && first.size == token.size()) bpe.character_ids.insert(first.value, id);
  if (parts.ignores_merges) bpe.whole_words.emplace(token, id);
  // The peer looks for the byte as it spells it itself.
  const auto byte = parts.byte_fallback ? byte_of_fallback_token(token) : std::nullopt;
  if (byte && token == fmt::format("<0x{:02X}>", *byte)) bpe.byte_ids[*byte] = id;
}

int32_t Tokenizer::Impl::id_or_throw(std::string_view token, std::string_view field,
                                     std::optional<size_t> index) const {
  const auto at = id_of.find(token);
  if (at != id_of.end()) return at->second;
  const std::string place = index ? fmt::format("{}[{}]", field, *index) : std::string(field);
  throw FormatError(
      fmt::format("{}: {}: \"{}\" is not in the vocabulary", file_name, place, token));
}

void Tokenizer::Impl::build_merges(const TokenizerParts& parts) {
  bpe.merges = MergeTable(parts.merges.size());
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto& [left, right] = parts.merges[rank];
    const int32_t left_id = id_or_throw(left, "merges", rank);
    const int32_t right_id = id_or_throw(right, "merges", rank);
    const int32_t result = id_or_throw(left + right, "merges", rank);
    bpe.merges.insert(left_id, right_id, {static_cast<uint32_t>(rank), result});
  }
  if (parts.unk_token) bpe.unk_id = id_or_throw(*parts.unk_token, "unk_token", std::nullopt);
  bpe.fuses_unk = parts.fuses_unk;
}

int32_t Tokenizer::Impl::symbol_id(std::string_view text) {
  const auto known = id_of.find(text);
  if (known != id_of.end()) return known->second;
  const CodePoint first = first_code_point(text);
  if (first.size != text.size()) return -1;  // neither a token nor a character
  const int32_t pseudo = bpe.character_ids.find(first.value);
  if (pseudo >= 0) return pseudo;
  bpe.first_pseudo_id = static_cast<int32_t>(tokens.size());
  const auto id = static_cast<int32_t>(tokens.size() + bpe.pseudo_characters.size());
  bpe.pseudo_characters.emplace_back(text);
  bpe.character_ids.insert(first.value, id);
  return id;
}

void Tokenizer::Impl::build_scored_merges(const TokenizerParts& parts) {
  struct Pair {
    int32_t left, right, result;
    float score;
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!parts.scores[i]) continue;
    const std::string_view token = tokens[i];
    for (size_t at = 0; at < token.size();) {
      at += first_code_point(token.substr(at)).size;
      if (at == token.size()) break;
      const int32_t left = symbol_id(token.substr(0, at)), right = symbol_id(token.substr(at));
      const auto takes_part = [&](int32_t id) {
        return id >= 0 && (id >= static_cast<int32_t>(tokens.size()) || parts.scores[id]);
      };
      if (!takes_part(left) || !takes_part(right)) continue;
      pairs.push_back({left, right, static_cast<int32_t>(i), *parts.scores[i]});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.score > b.score; });
  bpe.merges = MergeTable(pairs.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    // Equal scores are equal ranks: the leftmost pair goes first.
    if (i > 0 && pairs[i].score != pairs[i - 1].score) ++rank;
    bpe.merges.insert(pairs[i].left, pairs[i].right, {rank, pairs[i].result});
  }
  if (parts.unk_token) bpe.unk_id = id_or_throw(*parts.unk_token, "unk_token", std::nullopt);
  bpe.fuses_unk = parts.fuses_unk;
}

void Tokenizer::Impl::build_joints(const TokenizerParts& parts) {
  if (parts.is_byte_level) return;
  // Characters that stand side by side in a token: a superset of what merges join.
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (std::string_view token : tokens) {
    int32_t previous = -1;
    for (; !token.empty(); token.remove_prefix(first_code_point(token).size)) {
      const int32_t id = bpe.character_ids.find(first_code_point(token).value);
      if (previous >= 0 && id >= 0) pairs.emplace_back(previous, id);
      previous = id;
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  bpe.joints = MergeTable(pairs.size());
  for (const auto& [left, right] : pairs) bpe.joints.insert(left, right, {0, 0});
}

}  // namespace kv
