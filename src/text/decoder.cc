#include "text/decoder.h"

#include <charconv>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace kv {
namespace {

using Kind = DecoderStep::Kind;

std::string replaced_in(const Replacer& replacer, const std::string& token) {
  if (!replacer.regex) return replacer.apply(token, nullptr);
  RegexMatcher matcher(*replacer.regex);
  return replacer.apply(token, &matcher);
}

/// Runs of byte tokens become the text they spell, or one U+FFFD a byte where they spell none.
std::vector<std::string> bytes_joined(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto finish = [&] {
    if (well_formed_prefix(run) == run.size()) {
      if (!run.empty()) out.push_back(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) out.emplace_back("\uFFFD");
    }
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = byte_of_fallback_token(token)) {
      run += static_cast<char>(*byte);
      continue;
    }
    finish();
    out.push_back(token);
  }
  finish();
  return out;
}

std::string stripped(const DecoderStep& step, const std::string& token) {
  std::string_view text = token;
  for (int64_t i = 0; i < step.start && text.starts_with(step.content); ++i) {
    text.remove_prefix(step.content.size());
  }
  for (int64_t i = 0; i < step.stop && text.ends_with(step.content); ++i) {
    text.remove_suffix(step.content.size());
  }
  return std::string(text);
}

std::string spaces_back(const DecoderStep& step, const std::string& token, bool is_first) {
  const std::string space = is_first && step.drops_first ? "" : " ";
  return Replacer{step.content, std::nullopt, space}.apply(token, nullptr);
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

}  // namespace

std::optional<uint8_t> byte_of_fallback_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* end = token.data() + 5;
  if (std::from_chars(token.data() + 3, end, byte, 16).ptr != end) return std::nullopt;
  return byte;
}

bool Decoder::is_byte_level() const {
  return steps_.size() == 1 && steps_[0].kind == Kind::kByteLevel;
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const DecoderStep& step : steps_) {
    if (step.kind == Kind::kByteFallback) tokens = bytes_joined(tokens);
    if (step.kind == Kind::kFuse) tokens = {joined(tokens)};
    bool is_first = true;
    for (std::string& token : tokens) {
      if (step.kind == Kind::kReplace) token = replaced_in(*step.replacer, token);
      if (step.kind == Kind::kStrip) token = stripped(step, token);
      if (step.kind == Kind::kByteLevel) token = spelled_bytes(token).value_or(token);
      if (step.kind == Kind::kMetaspace) token = spaces_back(step, token, is_first);
      is_first = false;
    }
    if (step.kind == Kind::kByteLevel) tokens = {replace_ill_formed(joined(tokens))};
  }
  return joined(tokens);
}

std::string Decoder::bytes_of(const std::string& token) const {
  std::string out = token;
  for (const DecoderStep& step : steps_) {
    if (step.kind == Kind::kReplace) out = replaced_in(*step.replacer, out);
    if (step.kind == Kind::kByteLevel) out = spelled_bytes(out).value_or(out);
    if (step.kind == Kind::kMetaspace) out = spaces_back(step, out, /*is_first=*/false);
    if (step.kind != Kind::kByteFallback) continue;
    if (const auto byte = byte_of_fallback_token(out)) out.assign(1, static_cast<char>(*byte));
  }
  return out;
}

}  // namespace kv
