#pragma once

#include <string>
#include <string_view>

namespace kv {

/// Rewrites a pattern of tokenizer.json, which is written for Oniguruma's Ruby syntax, to a PCRE2
/// pattern (flags UTF, UCP, MULTILINE) that matches the same. Where both engines give a construct
/// another meaning (\b, \h, \w, {n}+, class intersections, ...), there is no
/// rewriting: throws UnsupportedError that names `where`, the construct and its position.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace kv
