#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kv {

/// Character classes as the `tokenizers` package sees them (Unicode 16), spelled for the inside of
/// a PCRE2 class: the property as the installed PCRE2 knows it (Debian 12: Unicode 14) and the
/// ranges that were assigned since.
///
/// name: L, M, N, P, S, Z, Lu, Ll, Lt, Lm, Lo, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc,
/// Sk, So, Zs, Zl, Zp or Han. nullopt for others: there U+1171E or more moved between categories.
std::optional<std::string> class_items_of(std::string_view name);

/// \w as Unicode TR18 has it: Alphabetic, marks, decimal digits, connectors and joiners.
std::string word_class_items();

/// What Rust's char::is_numeric accepts (Unicode 17), for the Digits pre-tokenizer.
std::string digit_class_items();

}  // namespace kv
