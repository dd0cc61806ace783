#pragma once

#include <string>
#include <string_view>

namespace kv {

/// Unicode normalization form C of well-formed `text`, by the tables of Unicode 9, which is what
/// the `tokenizers` package uses: marks and compositions that came later are left where they are.
std::string to_nfc(std::string_view text);

/// True when to_nfc(text) is certainly the text itself (all code points below U+0300).
bool is_plainly_nfc(std::string_view text);

}  // namespace kv
