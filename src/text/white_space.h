#pragma once

#include <cstddef>
#include <string_view>

#include "text/utf8.h"

namespace kv {

/// The property White_Space of Unicode.
bool is_white_space(CodePoint c);

/// The code point that ends before `at`; at > 0.
CodePoint code_point_before(std::string_view text, size_t at);

/// The place behind the white space that begins at `at`, and the one before the white space that
/// ends at `at`, not before `limit`.
size_t skip_white_space(std::string_view text, size_t at);
size_t skip_white_space_back(std::string_view text, size_t at, size_t limit);

}  // namespace kv
