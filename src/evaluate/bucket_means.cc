#include "evaluate/bucket_means.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numeric>

#include "kvscale/error.h"

namespace kv {
namespace {

constexpr std::array<std::string_view, 3> kColumns = {"bucket", "control", "candidate"};

std::string without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
}

/// Fields of one line; a quoted one may hold commas and doubled quotes, no line break.
std::vector<std::string> fields_of(std::string_view line, const std::string& where) {
  std::vector<std::string> out(1);
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"') {
      out.back() += line[++i];
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  if (is_quoted) throw FormatError(fmt::format("{}: expected a closing quote, found none", where));
  for (std::string& field : out) field = without_space(field);
  return out;
}

/// Where the header has bucket, control and candidate.
std::array<size_t, 3> columns_of(const std::vector<std::string>& header, const std::string& where) {
  for (const std::string& name : header) {
    if (std::ranges::find(kColumns, name) != kColumns.end()) continue;
    throw FormatError(fmt::format(
        "{}: expected a header with bucket, control and candidate, found \"{}\"", where, name));
  }
  std::array<size_t, 3> out{};
  for (size_t c = 0; c < kColumns.size(); ++c) {
    const auto found = std::ranges::find(header, kColumns[c]);
    if (found == header.end() || std::ranges::count(header, kColumns[c]) != 1) {
      throw FormatError(fmt::format("{}: expected the column \"{}\" once, found it {} times", where,
                                    kColumns[c], std::ranges::count(header, kColumns[c])));
    }
    out[c] = static_cast<size_t>(found - header.begin());
  }
  return out;
}

struct Mean {
  double value = 0;
  bool has_sign = false;
};

Mean mean_of(std::string text, const std::string& where, std::string_view column) {
  const std::string found = text;
  Mean out;
  if (text.ends_with('%')) {
    out.has_sign = true;
    text = without_space(std::string_view(text).substr(0, text.size() - 1));
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.value);
  if (error == std::errc() && end == text.data() + text.size() && out.value >= 0 &&
      out.value <= 100) {
    return out;
  }
  throw FormatError(
      fmt::format("{}: {}: expected a number from 0 to 100, found \"{}\"", where, column, found));
}

struct Row {
  std::string bucket;
  Mean control, candidate;
};

std::vector<Row> rows_of_file(std::istream& file, const std::string& name) {
  std::vector<Row> rows;
  std::array<size_t, 3> columns{};
  size_t width = 0, number = 0;
  for (std::string line; std::getline(file, line);) {
    if (++number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    if (without_space(line).empty()) continue;
    const std::string where = fmt::format("{}: line {}", name, number);
    const std::vector<std::string> fields = fields_of(line, where);
    if (width == 0) {
      columns = columns_of(fields, where);
      width = fields.size();
      continue;
    }
    if (fields.size() != width) {
      throw FormatError(
          fmt::format("{}: expected {} fields, found {}", where, width, fields.size()));
    }
    const std::string& bucket = fields[columns[0]];
    if (bucket.empty() || std::ranges::find(rows, bucket, &Row::bucket) != rows.end()) {
      throw FormatError(
          fmt::format("{}: bucket: expected a new name, found \"{}\"", where, bucket));
    }
    rows.push_back({bucket, mean_of(fields[columns[1]], where, "control"),
                    mean_of(fields[columns[2]], where, "candidate")});
  }
  return rows;
}

bool are_percent(const std::vector<Row>& rows, MeansUnit unit, const std::string& name) {
  double largest = 0;
  bool has_sign = false, has_share = false;
  for (const Row& row : rows) {
    for (const auto& mean : {row.control, row.candidate}) {
      largest = std::max(largest, mean.value);
      has_sign |= mean.has_sign;
      has_share |= !mean.has_sign && mean.value > 0 && mean.value <= 1;
    }
  }
  if (has_sign && has_share && unit == MeansUnit::kAuto) {
    throw FormatError(fmt::format(
        "{}: expected all percentages or all shares, found percent signs and numbers up to 1 "
        "without; --unit says which",
        name));
  }
  if (unit == MeansUnit::kAuto) return has_sign || largest > 1;
  if (unit == MeansUnit::kPercent) return true;
  if (!has_sign && largest <= 1) return false;
  throw FormatError(fmt::format("{}: expected shares, 0 to 1, found {}", name,
                                has_sign ? "a percent sign" : fmt::format("{}", largest)));
}

}  // namespace

MeansUnit means_unit(std::string_view word) {
  if (word == "auto") return MeansUnit::kAuto;
  if (word == "percent") return MeansUnit::kPercent;
  if (word == "share") return MeansUnit::kShare;
  throw ValueError(fmt::format("unit: expected auto, percent or share, found \"{}\"", word));
}

std::optional<double> length_of_label(std::string_view label) {
  double unit = 1;
  if (label.ends_with('k') || label.ends_with('K')) unit = 1 << 10;
  if (label.ends_with('M')) unit = 1 << 20;
  if (unit > 1) label.remove_suffix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), number);
  if (error != std::errc() || end != label.data() + label.size()) return std::nullopt;
  if (!std::isfinite(number) || number <= 0) return std::nullopt;
  return number * unit;
}

BucketMeans read_bucket_means(const std::filesystem::path& path, MeansUnit unit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError(fmt::format("{}: cannot be read", path.string()));
  std::vector<Row> rows = rows_of_file(file, path.string());
  if (rows.size() < 2) {
    throw FormatError(
        fmt::format("{}: expected at least 2 buckets, found {}", path.string(), rows.size()));
  }
  BucketMeans out;
  const bool have_lengths = std::ranges::all_of(
      rows, [](const Row& row) { return length_of_label(row.bucket).has_value(); });
  if (have_lengths) {
    std::ranges::stable_sort(rows, {}, [](const Row& row) { return *length_of_label(row.bucket); });
  }
  out.was_percent = are_percent(rows, unit, path.string());
  const double scale = out.was_percent ? 100 : 1;
  for (const Row& row : rows) {
    out.buckets.push_back(row.bucket);
    if (have_lengths) out.lengths.push_back(*length_of_label(row.bucket));
    out.control.push_back(row.control.value / scale);
    out.candidate.push_back(row.candidate.value / scale);
  }
  const auto twice = std::ranges::adjacent_find(out.lengths);
  if (twice == out.lengths.end()) return out;
  throw FormatError(
      fmt::format("{}: expected each length once, found {} tokens twice", path.string(), *twice));
}

}  // namespace kv
