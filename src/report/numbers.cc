#include "report/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "kvscale/error.h"

namespace kv {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

std::string non_finite(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

bool is_zero_text(std::string_view text) {
  return text.find_first_of("123456789") == std::string_view::npos;
}

std::string trim_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

struct Unit {
  int64_t bytes;
  std::string_view name;
};

constexpr std::array<Unit, 4> kUnits = {Unit{kMib << 30, "PiB"}, Unit{kMib << 20, "TiB"},
                                        Unit{kMib << 10, "GiB"}, Unit{kMib, "MiB"}};

/// A whole number of eighths of a unit, in decimal.
std::string in_units(int64_t bytes, const Unit& unit) {
  const int64_t thousandths = bytes % unit.bytes / (unit.bytes / 8) * 125;
  return trim_zeros(fmt::format("{}.{:03}", grouped(bytes / unit.bytes), thousandths)) + " " +
         std::string(unit.name);
}

/// [first, last] of every run of consecutive numbers.
std::vector<std::pair<int64_t, int64_t>> runs_of(std::span<const int64_t> ascending) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const int64_t number : ascending) {
    if (!runs.empty() && runs.back().second + 1 == number) {
      runs.back().second = number;
    } else {
      runs.emplace_back(number, number);
    }
  }
  return runs;
}

/// A run of two is two numbers; a longer one is "first<join>last".
std::vector<std::string> parts_of(std::span<const int64_t> ascending, std::string_view join) {
  std::vector<std::string> parts;
  for (const auto& [first, last] : runs_of(ascending)) {
    if (last - first >= 2) {
      parts.push_back(fmt::format("{}{}{}", first, join, last));
    } else {
      for (int64_t number = first; number <= last; ++number)
        parts.push_back(fmt::to_string(number));
    }
  }
  return parts;
}

}  // namespace

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return non_finite(value);
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.front() == '-' && is_zero_text(text)) text.erase(0, 1);
  return text;
}

std::string signed_fixed(double value, int decimals) {
  const std::string text = fixed(value, decimals);
  if (!std::isfinite(value) || value <= 0 || is_zero_text(text)) return text;
  return "+" + text;
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return non_finite(value);
  if (value == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  return trim_zeros(fixed(value, std::clamp(digits - 1 - magnitude, 0, 6)));
}

double round_up(double value) {
  if (!std::isfinite(value) || value <= 0) return value;
  const double step = std::pow(10.0, std::floor(std::log10(value)));
  // 0.02 / 0.01 may come out as 2 + 1 ulp: without the allowance it would become 0.03.
  return std::ceil(value / step - 1e-9) * step;
}

std::string grouped(int64_t value) {
  std::string digits = fmt::to_string(value);
  const auto first = static_cast<size_t>(value < 0);
  for (size_t end = digits.size(); end > first + 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string format_bytes(int64_t bytes) {
  const auto* unit =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return bytes >= u.bytes; });
  if (unit == kUnits.end()) return grouped(bytes) + " B";
  for (const auto* smaller = unit; smaller != kUnits.end(); ++smaller) {
    if (bytes % (smaller->bytes / 8) == 0) return in_units(bytes, *smaller);
  }
  // A few bytes beside a round number are metadata and stay readable apart.
  const int64_t rest = bytes % (unit->bytes / 8);
  if (rest < kMib && rest < bytes / 1024) {
    return fmt::format("{} + {} B", in_units(bytes - rest, *unit), grouped(rest));
  }
  const double units = static_cast<double>(bytes) / static_cast<double>(unit->bytes);
  return fmt::format("~{} {} ({} B)", significant(units, 4), unit->name, grouped(bytes));
}

std::string format_percent(int64_t part, int64_t whole) {
  if (whole <= 0) throw ValueError(fmt::format("percentage of {}: expected more than 0", whole));
  const double value = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  const std::string text = trim_zeros(fixed(value, 4));
  // A fraction in lowest terms ends after six decimals if its denominator divides a million.
  const bool is_exact = 1000000 % (whole / std::gcd(part, whole)) == 0;
  return (is_exact ? "" : "~") + text + " %";
}

std::string percent(double share, int decimals) { return fixed(100 * share, decimals) + " %"; }

std::string list_numbers(std::span<const int64_t> ascending) {
  const std::vector<std::string> parts = parts_of(ascending, " to ");
  if (parts.empty()) return "none";
  if (parts.size() == 1) return parts.front();
  return fmt::format("{} and {}", fmt::join(parts.begin(), parts.end() - 1, ", "), parts.back());
}

std::string compact_numbers(std::span<const int64_t> ascending) {
  if (ascending.empty()) return "-";
  return fmt::format("{}", fmt::join(parts_of(ascending, "-"), ","));
}

std::string list_in_order(std::span<const int> numbers) {
  return numbers.empty() ? "none" : fmt::format("{}", fmt::join(numbers, ", "));
}

}  // namespace kv
