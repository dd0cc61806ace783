#pragma once

#include <string>
#include <string_view>

namespace kv {

/// The normalization forms of Unicode.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// A normalization form of well-formed `text`, by the tables of Unicode 9, which is what the
/// `tokenizers` package uses: marks, compositions and decompositions that came later are left where
/// they are.
std::string to_normal_form(std::string_view text, NormalForm form);

/// True when to_normal_form(text, form) is certainly the text itself: all code points below U+0300
/// for NFC, ASCII for the others.
bool is_plainly_normal(std::string_view text, NormalForm form);

inline std::string to_nfc(std::string_view text) { return to_normal_form(text, NormalForm::kNfc); }

}  // namespace kv
