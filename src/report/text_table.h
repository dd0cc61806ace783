#pragma once

#include <string>
#include <vector>

#include "report/text_style.h"

namespace kv {

/// One column of a table on a terminal.
struct TextColumn {
  std::string title;
  bool right = true;   // numbers stand right, words left
  bool wraps = false;  // takes the width that is left over, on several lines where needed
};

/// One cell, with the ANSI colour (SGR number, 0 = none) that the style may switch on.
struct TextCell {
  std::string text;  // printable
  int color = 0;
};

/// Rows of equal length under their titles, two spaces apart, at most style.width columns wide;
/// columns that wrap share what the others leave, at least eight columns each, and break a word
/// only where the table would not fit otherwise. Each line ends with a newline and has no trailing
/// spaces.
std::string text_table(const std::vector<TextColumn>& columns,
                       const std::vector<std::vector<TextCell>>& rows, const TextStyle& style);

/// The text between the escapes of an SGR colour, or the bare text when the style has none.
std::string colored(const std::string& text, int color, const TextStyle& style);

/// Wrapped lines, each ending with a newline.
std::string paragraph(const std::string& text, const TextStyle& style, int indent = 0);

}  // namespace kv
