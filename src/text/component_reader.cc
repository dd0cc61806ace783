#include "text/component_reader.h"

#include <fmt/format.h>

#include "kvscale/error.h"
#include "text/pipelines.h"
#include "text/regex_dialect.h"
#include "text/utf8.h"

namespace kv {

void refuse_component(const JsonField& field, std::string_view found, std::string_view supported) {
  throw UnsupportedError(
      fmt::format("{}: \"{}\" is not served; supported: {}", field.path(), found, supported));
}

const std::string& type_of(const JsonField& component) { return component.at("type").as_string(); }

namespace {

/// A text of one character, as a replacement for spaces is.
const std::string& one_character(const JsonField& field) {
  const std::string& text = field.as_string();
  if (text.empty() || first_code_point(text).size != text.size()) {
    field.throw_expected("one character");
  }
  return text;
}

Replacer read_replacer(const JsonField& field) {
  const JsonField pattern = field.at("pattern");
  const bool is_regex = !pattern.get("Regex").is_null();
  const JsonField text = is_regex ? pattern.get("Regex") : pattern.at("String");
  Replacer out;
  out.with = field.at("content").as_string();
  if (is_regex) {
    out.regex = Regex(to_pcre2(text.as_string(), text.path()), text.path());
  } else {
    out.literal = text.as_string();
    if (out.literal.empty()) text.throw_expected("a text that is not empty");
  }
  return out;
}

/// A number of characters to strip.
int64_t read_count(const JsonField& field) { return field.as_id(); }

}  // namespace

void read_normalizer(const JsonField& field, TokenizerParts& parts) {
  using Kind = NormalizerStep::Kind;
  if (field.is_null()) return;
  const std::string& type = type_of(field);
  if (type == "Sequence") {
    const JsonField list = field.at("normalizers");
    for (size_t i = 0; i < list.array_size(); ++i) read_normalizer(list.at(i), parts);
    return;
  }
  NormalizerStep step;
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.form = type == "NFC"    ? NormalForm::kNfc
                : type == "NFD"  ? NormalForm::kNfd
                : type == "NFKC" ? NormalForm::kNfkc
                                 : NormalForm::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.prefix = field.at("prepend").as_string();
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    step.replacer = read_replacer(field);
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.strips_left = field.at("strip_left").as_bool();
    step.strips_right = field.at("strip_right").as_bool();
  } else {
    refuse_component(field, type,
                     "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequence");
  }
  add_normalizer(parts, std::move(step), field.value().dump());
}

namespace {

SplitBehavior behavior_of(const JsonField& field) {
  const std::string& name = field.as_string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw FormatError(fmt::format(
      "{}: expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous, found "
      "\"{}\"",
      field.path(), name));
}

void read_split(const JsonField& field, TokenizerParts& parts) {
  const JsonField pattern = field.at("pattern");
  const bool is_regex = !pattern.get("Regex").is_null();
  const JsonField text = is_regex ? pattern.get("Regex") : pattern.at("String");
  add_split(parts, text.as_string(), is_regex, behavior_of(field.at("behavior")),
            field.at("invert").as_bool(), text.path());
}

PrependScheme scheme_of(const JsonField& component) {
  const JsonField field = component.get("prepend_scheme");
  if (field.is_null()) {  // the older spelling
    return component.bool_or("add_prefix_space", true) ? PrependScheme::kAlways
                                                       : PrependScheme::kNever;
  }
  const std::string& name = field.as_string();
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  throw FormatError(
      fmt::format("{}: expected always, first or never, found \"{}\"", field.path(), name));
}

/// `may_be_bytes`: ByteLevel may only come last, since the steps work on bytes' characters then.
void read_step(const JsonField& field, TokenizerParts& parts, bool may_be_bytes) {
  const std::string& type = type_of(field);
  if (type == "Split") {
    read_split(field, parts);
  } else if (type == "Digits") {
    add_digits(parts, field.at("individual_digits").as_bool());
  } else if (type == "ByteLevel" && may_be_bytes) {
    add_byte_level(parts, field.at("add_prefix_space").as_bool(), field.bool_or("use_regex", true));
  } else if (type == "Metaspace") {
    add_metaspace(parts, one_character(field.at("replacement")), scheme_of(field),
                  field.bool_or("split", true));
  } else if (type == "Whitespace") {
    add_whitespace(parts);
  } else if (type == "WhitespaceSplit") {
    add_whitespace_split(parts);
  } else if (type == "Punctuation") {
    const JsonField behavior = field.get("behavior");
    add_punctuation(parts, behavior.is_null() ? SplitBehavior::kIsolated : behavior_of(behavior));
  } else if (type == "CharDelimiterSplit") {
    const JsonField delimiter = field.at("delimiter");
    add_split(parts, one_character(delimiter), /*is_regex=*/false, SplitBehavior::kRemoved,
              /*is_inverted=*/false, delimiter.path());
  } else if (type == "Sequence") {
    const JsonField list = field.at("pretokenizers");
    const size_t n = list.array_size();
    for (size_t i = 0; i < n; ++i) read_step(list.at(i), parts, may_be_bytes && i + 1 == n);
  } else {
    refuse_component(field, type,
                     "Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, "
                     "CharDelimiterSplit, Sequence, and ByteLevel at the end");
  }
}

}  // namespace

void read_pre_tokenizer(const JsonField& field, TokenizerParts& parts) {
  if (!field.is_null()) read_step(field, parts, /*may_be_bytes=*/true);
}

void read_decoder(const JsonField& field, TokenizerParts& parts) {
  using Kind = DecoderStep::Kind;
  constexpr std::string_view kServed =
      "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence";
  if (field.is_null()) refuse_component(field, "null", kServed);
  const std::string& type = type_of(field);
  DecoderStep step;
  if (type == "Sequence") {
    const JsonField list = field.at("decoders");
    for (size_t i = 0; i < list.array_size(); ++i) read_decoder(list.at(i), parts);
    return;
  }
  if (type == "Replace") {
    step.kind = Kind::kReplace;
    step.replacer = read_replacer(field);
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.content = one_character(field.at("content"));
    step.start = read_count(field.at("start"));
    step.stop = read_count(field.at("stop"));
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.content = one_character(field.at("replacement"));
    step.drops_first = scheme_of(field) != PrependScheme::kNever;
  } else if (type != "ByteLevel") {
    refuse_component(field, type, kServed);
  }
  parts.decoder.push_back(std::move(step));
}

}  // namespace kv
