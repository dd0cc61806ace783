#include "text/pipelines.h"

#include <fmt/format.h>

#include "text/regex_dialect.h"
#include "text/unicode_additions.h"

namespace kv {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

void add_split(TokenizerParts& parts, std::string_view pattern, bool is_regex,
               SplitBehavior behavior, bool is_inverted, const std::string& where) {
  parts.pipeline += fmt::format("split {} {} {} {}; ", is_regex ? "regex" : "string", pattern,
                                static_cast<int>(behavior), is_inverted);
  SplitStep step;
  step.regex = Regex(is_regex ? to_pcre2(pattern, where) : Regex::quote(pattern), where);
  step.behavior = behavior;
  step.is_inverted = is_inverted;
  parts.steps.push_back(step);
}

void add_digits(TokenizerParts& parts, bool individual) {
  parts.pipeline += fmt::format("digits {}; ", individual);
  SplitStep step;
  step.regex = Regex("[" + digit_class_items() + "]", "Digits");
  step.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  parts.steps.push_back(step);
}

void add_byte_level(TokenizerParts& parts, bool adds_prefix_space, bool uses_regex) {
  parts.pipeline += fmt::format("bytes {} {}; ", adds_prefix_space, uses_regex);
  SplitStep step;
  if (uses_regex) step.regex = Regex(to_pcre2(kGpt2Pattern, "ByteLevel"), "ByteLevel");
  step.adds_prefix_space = adds_prefix_space;
  parts.is_byte_level = true;
  parts.steps.push_back(step);
}

void add_metaspace(TokenizerParts& parts, const std::string& replacement, PrependScheme scheme,
                   bool splits) {
  parts.pipeline +=
      fmt::format("metaspace {} {} {}; ", replacement, static_cast<int>(scheme), splits);
  SplitStep step;
  if (splits) step.regex = Regex(Regex::quote(replacement), "Metaspace");
  step.behavior = SplitBehavior::kMergedWithNext;
  step.space = replacement;
  step.scheme = scheme;
  parts.steps.push_back(step);
}

namespace {

void add_class_split(TokenizerParts& parts, const std::string& name, const std::string& pattern,
                     SplitBehavior behavior, bool is_inverted) {
  parts.pipeline += fmt::format("{} {}; ", name, static_cast<int>(behavior));
  SplitStep step;
  step.regex = Regex(pattern, name);
  step.behavior = behavior;
  step.is_inverted = is_inverted;
  parts.steps.push_back(step);
}

// White_Space; PCRE2's own \s also takes U+180E.
constexpr std::string_view kSpaces = "\\t-\\r\\x{85}\\p{Z}";

}  // namespace

void add_whitespace(TokenizerParts& parts) {
  const std::string word = word_class_items();
  add_class_split(parts, "Whitespace", fmt::format("[{}]+|[^{}{}]+", word, word, kSpaces),
                  SplitBehavior::kRemoved, /*is_inverted=*/true);
}

void add_whitespace_split(TokenizerParts& parts) {
  add_class_split(parts, "WhitespaceSplit", fmt::format("[{}]", kSpaces), SplitBehavior::kRemoved,
                  /*is_inverted=*/false);
}

void add_punctuation(TokenizerParts& parts, SplitBehavior behavior) {
  const std::string items = "!-\\/:-@\\[-`{-~" + *class_items_of("P");
  add_class_split(parts, "Punctuation", "[" + items + "]", behavior, /*is_inverted=*/false);
}

void add_normalizer(TokenizerParts& parts, NormalizerStep step, const std::string& words) {
  // The fingerprint has a field of its own for NFC, which was the only one once.
  const bool is_nfc = step.kind == NormalizerStep::Kind::kForm && step.form == NormalForm::kNfc;
  if (is_nfc && parts.normalizers.empty()) {
    parts.normalizes_nfc = true;
  } else if (!is_nfc || !parts.normalizes_nfc || parts.normalizers.size() > 1) {
    parts.pipeline += fmt::format("normalize {}; ", words);
  }
  parts.normalizers.push_back(std::move(step));
}

void add_sentencepiece(TokenizerParts& parts, bool adds_prefix_space) {
  const std::string space = "\u2581";
  if (adds_prefix_space) {
    NormalizerStep prepend;
    prepend.kind = NormalizerStep::Kind::kPrepend;
    prepend.prefix = space;
    add_normalizer(parts, prepend, "prepend " + space);
  }
  NormalizerStep replace;
  replace.kind = NormalizerStep::Kind::kReplace;
  replace.replacer = Replacer{" ", std::nullopt, space};
  add_normalizer(parts, replace, "replace space " + space);
  DecoderStep step;
  step.kind = DecoderStep::Kind::kReplace;
  step.replacer = Replacer{space, std::nullopt, " "};
  parts.decoder.push_back(step);
  step = {};
  step.kind = DecoderStep::Kind::kByteFallback;
  parts.decoder.push_back(step);
  step.kind = DecoderStep::Kind::kFuse;
  parts.decoder.push_back(step);
  if (!adds_prefix_space) return;
  step.kind = DecoderStep::Kind::kStrip;
  step.content = " ";
  step.start = 1;
  parts.decoder.push_back(step);
}

}  // namespace kv
