#pragma once

#include <string_view>

namespace kv {

/// 2M / (len a + len b): M is how many code points lie in matching blocks, found as Ratcliff and
/// Obershelp do: the longest common block (of several the first in a, then in b), then the same to
/// its left and to its right. What Python's difflib.SequenceMatcher(None, a, b, False).ratio()
/// gives; 1 for two empty texts. A byte that is no UTF-8 counts as a code point of its own.
///
/// Takes time len a * len b for each block found in a row: meant for answers, not for books.
double similarity(std::string_view a, std::string_view b);

}  // namespace kv
