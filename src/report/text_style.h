#pragma once

namespace kv {

/// How a report is written to a terminal or a file.
struct TextStyle {
  bool color = false;   // ANSI escapes; numbers and words say the same without
  bool unicode = true;  // block characters in the heat map; false = digits and letters only
  int width = 100;      // columns, at least 72
};

}  // namespace kv
