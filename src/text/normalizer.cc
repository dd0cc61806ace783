#include "text/normalizer.h"

#include <utf8proc.h>

#include "text/utf8.h"
#include "text/white_space.h"

namespace kv {

namespace {

/// Capitals that Unicode 15.1, 16 and 17 added, whose small letters utf8proc does not know yet.
struct YoungCapitals {
  uint32_t first, last, small;
};
constexpr YoungCapitals kYoungCapitals[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},  {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
    {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x19B},  {0x10D50, 0x10D65, 0x10D70},
    {0x16EA0, 0x16EB8, 0x16EBB},
};

uint32_t small_letter(uint32_t c) {
  if (c >= kYoungCapitals[0].first) {
    for (const YoungCapitals& range : kYoungCapitals) {
      if (c >= range.first && c <= range.last) return range.small + (c - range.first);
    }
  }
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

std::string lowercased(std::string_view text) {
  constexpr uint32_t kDottedI = 0x130;  // the one character that becomes two
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    if (c.value == kDottedI) {
      out += "i\u0307";
    } else {
      append_utf8(out, small_letter(c.value));
    }
    text.remove_prefix(c.size);
  }
  return out;
}

Normalizer::Matchers Normalizer::make_matchers() const {
  Matchers matchers;
  for (const NormalizerStep& step : steps_) {
    matchers.emplace_back();
    if (step.replacer && step.replacer->regex) matchers.back().emplace(*step.replacer->regex);
  }
  return matchers;
}

std::string_view Normalizer::apply(std::string_view text, Matchers& matchers,
                                   std::string& storage) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const NormalizerStep& step = steps_[i];
    std::string changed;
    switch (step.kind) {
      case NormalizerStep::Kind::kForm:
        if (is_plainly_normal(text, step.form)) continue;
        changed = to_normal_form(text, step.form);
        break;
      case NormalizerStep::Kind::kLowercase:
        changed = lowercased(text);
        break;
      case NormalizerStep::Kind::kPrepend:
        if (text.empty()) continue;
        changed.append(step.prefix).append(text);
        break;
      case NormalizerStep::Kind::kReplace:
        changed = step.replacer->apply(text, matchers[i] ? &*matchers[i] : nullptr);
        break;
      case NormalizerStep::Kind::kStrip: {
        size_t begin = 0, end = text.size();
        if (step.strips_left) begin = skip_white_space(text, 0);
        if (step.strips_right) end = skip_white_space_back(text, end, begin);
        changed = text.substr(begin, end - begin);
        break;
      }
    }
    storage = std::move(changed);
    text = storage;
  }
  return text;
}

}  // namespace kv
