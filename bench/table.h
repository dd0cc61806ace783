#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <vector>

#include "kvscale/error.h"

namespace kv::bench {

/// Rows as they come, in Markdown, CSV or JSON Lines (numbers stay numbers).
class Table {
 public:
  struct Cell {
    std::string text;
    bool is_number;
  };

  Table(const std::string& as, std::vector<std::string> columns)
      : as_(as), columns_(std::move(columns)) {
    if (as_ != "markdown" && as_ != "csv" && as_ != "json")
      throw ValueError(fmt::format("--as: expected markdown, csv or json, found '{}'", as_));
    if (as_ == "json") return;
    line(columns_);
    if (as_ == "markdown") line(std::vector<std::string>(columns_.size(), "---"));
  }

  void row(const std::vector<Cell>& cells) const {
    if (as_ != "json") {
      std::vector<std::string> words;
      for (const Cell& cell : cells) words.push_back(cell.text);
      return line(words);
    }
    std::string out;
    for (size_t i = 0; i < cells.size(); ++i) {
      const char* quote = cells[i].is_number ? "" : "\"";
      out += fmt::format("{}\"{}\": {}{}{}", i == 0 ? "" : ", ", columns_[i], quote, cells[i].text,
                         quote);
    }
    fmt::print("{{{}}}\n", out);
    std::fflush(stdout);
  }

  template <class T>
  static Cell number(const char* format, T value) {
    return {fmt::format(fmt::runtime(format), value), true};
  }
  static Cell word(std::string text) { return {std::move(text), false}; }

 private:
  void line(const std::vector<std::string>& words) const {
    std::string out = as_ == "markdown" ? "|" : "";
    for (size_t i = 0; i < words.size(); ++i) {
      // Kernel names have commas: CSV quotes them.
      if (as_ == "markdown") out += " " + words[i] + " |";
      if (as_ == "csv") {
        const bool quoted = words[i].find(',') != std::string::npos;
        out += (i == 0 ? "" : ",") + (quoted ? "\"" + words[i] + "\"" : words[i]);
      }
    }
    fmt::print("{}\n", out);
    std::fflush(stdout);
  }

  std::string as_;
  std::vector<std::string> columns_;
};

}  // namespace kv::bench
