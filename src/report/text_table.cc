#include "report/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/plain_text.h"

namespace kv {
namespace {

constexpr int kGap = 2;
constexpr int kLeastWrapped = 8;

std::vector<int> natural_widths(const std::vector<TextColumn>& heads,
                                const std::vector<std::vector<TextCell>>& rows) {
  std::vector<int> widths;
  for (size_t c = 0; c < heads.size(); ++c) {
    int width = columns(heads[c].title);
    for (const auto& row : rows) width = std::max(width, columns(row[c].text));
    widths.push_back(width);
  }
  return widths;
}

int longest_word(std::string_view text) {
  int longest = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    longest = std::max(longest, columns(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

/// The widths at which no word of a column breaks, at least `kLeastWrapped`.
std::vector<int> word_widths(const std::vector<TextColumn>& heads,
                             const std::vector<std::vector<TextCell>>& rows) {
  std::vector<int> widths;
  for (size_t c = 0; c < heads.size(); ++c) {
    int width = std::max(kLeastWrapped, longest_word(heads[c].title));
    for (const auto& row : rows) width = std::max(width, longest_word(row[c].text));
    widths.push_back(width);
  }
  return widths;
}

/// Takes from the columns that wrap, widest first, until the table fits or all are at their least.
void shrink(std::vector<int>& widths, const std::vector<TextColumn>& heads,
            const std::vector<int>& least, int width) {
  int total = kGap * (static_cast<int>(heads.size()) - 1);
  for (const int w : widths) total += w;
  for (; total > width; --total) {
    int* widest = nullptr;
    for (size_t c = 0; c < heads.size(); ++c) {
      if (!heads[c].wraps || widths[c] <= least[c]) continue;
      if (widest == nullptr || widths[c] > *widest) widest = &widths[c];
    }
    if (widest == nullptr) return;
    --*widest;
  }
}

std::string padded(const std::string& text, int color, int width, bool right,
                   const TextStyle& style) {
  const std::string space(static_cast<size_t>(std::max(0, width - columns(text))), ' ');
  const std::string shown = colored(text, color, style);
  return right ? space + shown : shown + space;
}

void add_row(std::string& out, const std::vector<TextColumn>& heads,
             const std::vector<TextCell>& row, const std::vector<int>& widths,
             const TextStyle& style) {
  std::vector<std::vector<std::string>> cells;
  size_t height = 1;
  for (size_t c = 0; c < row.size(); ++c) {
    cells.push_back(heads[c].wraps ? wrap(row[c].text, widths[c])
                                   : std::vector<std::string>{row[c].text});
    height = std::max(height, cells.back().size());
  }
  for (size_t line = 0; line < height; ++line) {
    std::string text;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) text.append(kGap, ' ');
      const std::string part = line < cells[c].size() ? cells[c][line] : "";
      text += padded(part, row[c].color, widths[c], heads[c].right, style);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  }
}

}  // namespace

std::string colored(const std::string& text, int color, const TextStyle& style) {
  if (!style.color || color == 0 || text.empty()) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", color, text);
}

std::string paragraph(const std::string& text, const TextStyle& style, int indent) {
  return fmt::format("{}\n", fmt::join(wrap(text, style.width, indent), "\n"));
}

std::string text_table(const std::vector<TextColumn>& heads,
                       const std::vector<std::vector<TextCell>>& rows, const TextStyle& style) {
  std::vector<int> widths = natural_widths(heads, rows);
  shrink(widths, heads, word_widths(heads, rows), style.width);
  shrink(widths, heads, std::vector<int>(heads.size(), kLeastWrapped), style.width);
  std::vector<TextCell> titles;
  for (const TextColumn& head : heads) titles.push_back({head.title});
  std::string out;
  add_row(out, heads, titles, widths, style);
  for (const auto& row : rows) add_row(out, heads, row, widths, style);
  return out;
}

}  // namespace kv
