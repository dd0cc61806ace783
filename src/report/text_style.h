#pragma once

namespace kv {

/// Colours and weight of ANSI escapes.
inline constexpr int kBold = 1, kRed = 31, kGreen = 32, kYellow = 33;

/// How a report is written to a terminal or a file.
struct TextStyle {
  bool color = false;   // ANSI escapes; numbers and words say the same without
  bool unicode = true;  // block characters in the heat map; false = digits and letters only
  int width = 100;      // columns, at least 72
};

}  // namespace kv
