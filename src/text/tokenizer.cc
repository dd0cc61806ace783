#include "text/tokenizer.h"

#include <fmt/format.h>

#include "kvscale/error.h"
#include "text/byte_alphabet.h"
#include "text/sha256.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace kv {
namespace {

/// All that decides the ids of a text.
std::string fingerprint_of(const TokenizerParts& parts) {
  Sha256 hash;
  hash.add_field(fmt::format("{} nfc {} ignore_merges {} unk {} fuse {} prefix {} suffix {}",
                             parts.pipeline, parts.normalizes_nfc, parts.ignores_merges,
                             parts.unk_token.value_or(""), parts.fuses_unk,
                             fmt::join(parts.prefix_ids, ","), fmt::join(parts.suffix_ids, ",")));
  for (const std::string& token : parts.tokens) hash.add_field(token);
  hash.add_field("merges");
  for (const MergeRule& merge : parts.merges) {
    hash.add_field(merge.left);
    hash.add_field(merge.right);
  }
  hash.add_field("added");
  for (const AddedToken& token : parts.added) {
    hash.add_field(token.content);
    hash.add_field(fmt::format("{} {} {} {} {} {}", token.id, token.is_special,
                               token.is_single_word, token.strips_left, token.strips_right,
                               token.is_normalized));
  }
  return hash.hex();
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerParts parts)
    : file_name(std::move(parts.file_name)),
      pre_tokenizer(std::move(parts.steps)),
      normalizer(parts.normalizers),
      decoder(parts.decoder),
      prefix_ids(parts.prefix_ids),
      suffix_ids(parts.suffix_ids),
      bos_id(parts.bos_id),
      eos_id(parts.eos_id),
      fingerprint(fingerprint_of(parts)) {
  tokens = std::move(parts.tokens);
  index_tokens(parts);
  if (parts.scores.empty()) {
    build_merges(parts);
  } else {
    build_scored_merges(parts);
  }
  build_joints(parts);
  build_added(parts);
  for (const auto* ids : {&prefix_ids, &suffix_ids}) {
    for (const int32_t id : *ids) check_id(id);
  }
  for (const auto& id : {bos_id, eos_id}) {
    if (id) check_id(*id);
  }
}

void Tokenizer::Impl::build_added(const TokenizerParts& parts) {
  is_special.resize(tokens.size());
  Normalizer::Matchers matchers = normalizer.make_matchers();
  // Special ones first: of equal contents the first one added counts.
  for (const bool special : {true, false}) {
    for (AddedToken token : parts.added) {
      if (token.is_special != special) continue;
      if (special) is_special[token.id] = true;
      if (!token.is_normalized) {
        raw_added.add(token);
        continue;
      }
      std::string storage;
      token.content = std::string(normalizer.apply(token.content, matchers, storage));
      if (parts.is_byte_level) {
        bytes[token.id] = spelled_bytes(token.content).value_or(token.content);
      }
      normalized_added.add(token);
    }
  }
}

std::unique_ptr<Tokenizer::Impl::Scratch> Tokenizer::Impl::take_scratch() const {
  {
    const std::lock_guard lock(mutex_);
    if (!pool_.empty()) {
      auto scratch = std::move(pool_.back());
      pool_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>(
      Scratch{normalizer.make_matchers(), pre_tokenizer.make_matchers(), {}});
}

void Tokenizer::Impl::give_back(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  pool_.push_back(std::move(scratch));
}

void Tokenizer::Impl::check_id(int32_t id) const {
  if (id >= 0 && static_cast<size_t>(id) < tokens.size()) return;
  throw ValueError(fmt::format("{}: token id {} is outside the vocabulary of {} tokens", file_name,
                               id, tokens.size()));
}

void Tokenizer::Impl::encode_piece(std::string_view text, bool is_first, Scratch& scratch,
                                   std::vector<int32_t>& out) const {
  std::string storage;
  text = normalizer.apply(text, scratch.normalizer_matchers, storage);
  const PreTokenizer::Sink on_word = [&](std::string_view word) {
    bpe.encode_word(word, scratch.cache, out);
  };
  normalized_added.scan(
      text,
      [&](std::string_view part) {
        pre_tokenizer.split(part, is_first && part.data() == text.data(), scratch.matchers,
                            on_word);
      },
      [&](int32_t id) { out.push_back(id); });
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::string replaced;
  if (well_formed_prefix(text) != text.size()) {
    replaced = replace_ill_formed(text);
    text = replaced;
  }
  std::vector<int32_t> out;
  out.reserve(impl_->prefix_ids.size() + impl_->suffix_ids.size() + text.size() / 3);
  if (add_special) out = impl_->prefix_ids;
  // An exception drops the working memory instead of giving it back, which is harmless.
  std::unique_ptr<Impl::Scratch> scratch = impl_->take_scratch();
  impl_->raw_added.scan(
      text,
      [&](std::string_view part) {
        impl_->encode_piece(part, part.data() == text.data(), *scratch, out);
      },
      [&](int32_t id) { out.push_back(id); });
  impl_->give_back(std::move(scratch));
  if (add_special) {
    out.insert(out.end(), impl_->suffix_ids.begin(), impl_->suffix_ids.end());
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  std::vector<std::string> tokens;
  const bool is_byte_level = impl_->decoder.is_byte_level();
  for (const int32_t id : ids) {
    impl_->check_id(id);
    if (skip_special && impl_->is_special[id]) continue;
    if (is_byte_level) {
      out += impl_->bytes[id];
    } else {
      tokens.push_back(impl_->tokens[id]);
    }
  }
  if (!is_byte_level) out = impl_->decoder.decode(std::move(tokens));
  return well_formed_prefix(out) == out.size() ? out : replace_ill_formed(out);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  impl_->check_id(id);
  return impl_->bytes[id];
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->tokens.size()); }

std::optional<int32_t> Tokenizer::token_id(std::string_view content) const {
  const auto at = impl_->id_of.find(content);
  if (at == impl_->id_of.end()) return std::nullopt;
  return at->second;
}

std::string_view Tokenizer::token(int32_t id) const {
  impl_->check_id(id);
  return impl_->tokens[id];
}

bool Tokenizer::is_special(int32_t id) const {
  impl_->check_id(id);
  return impl_->is_special[id];
}

std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }
std::span<const int32_t> Tokenizer::prefix_ids() const { return impl_->prefix_ids; }
std::span<const int32_t> Tokenizer::suffix_ids() const { return impl_->suffix_ids; }
const std::string& Tokenizer::fingerprint() const { return impl_->fingerprint; }

}  // namespace kv
