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
  parts.steps.push_back(step);
}

}  // namespace kv
