#include "decide/set_option.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "kvscale/error.h"

namespace kv {
namespace {

using Real = double& (*)(DecideOptions&);
using Count = int64_t& (*)(DecideOptions&);
using Switch = bool& (*)(DecideOptions&);

constexpr std::array<std::pair<std::string_view, Real>, 24> kReals = {{
    {"margin.bucket", [](DecideOptions& o) -> double& { return o.margin.bucket; }},
    {"margin.overall", [](DecideOptions& o) -> double& { return o.margin.overall; }},
    {"margin.validity", [](DecideOptions& o) -> double& { return o.margin.validity; }},
    {"margin.recovery", [](DecideOptions& o) -> double& { return o.margin.recovery; }},
    {"alpha.accept", [](DecideOptions& o) -> double& { return o.alpha_accept; }},
    {"alpha.shift", [](DecideOptions& o) -> double& { return o.alpha_shift; }},
    {"aa.max_flip", [](DecideOptions& o) -> double& { return o.aa_max_flip; }},
    {"aa.min_p", [](DecideOptions& o) -> double& { return o.aa_min_p; }},
    {"insensitive_se", [](DecideOptions& o) -> double& { return o.insensitive_se; }},
    {"gain.capacity_min", [](DecideOptions& o) -> double& { return o.capacity_gain_min; }},
    {"gain.latency_min", [](DecideOptions& o) -> double& { return o.latency_gain_min; }},
    {"harm.ttft_max", [](DecideOptions& o) -> double& { return o.ttft_max; }},
    {"harm.itl_max", [](DecideOptions& o) -> double& { return o.itl_max; }},
    {"bf16_share_max", [](DecideOptions& o) -> double& { return o.bf16_share_max; }},
    {"excess_removed", [](DecideOptions& o) -> double& { return o.excess_removed; }},
    {"offset_noise", [](DecideOptions& o) -> double& { return o.offset_noise; }},
    {"offset_centred_db", [](DecideOptions& o) -> double& { return o.offset_centred_db; }},
    {"head_gap_db", [](DecideOptions& o) -> double& { return o.head_gap_db; }},
    {"token_clip_frac", [](DecideOptions& o) -> double& { return o.token_clip_frac; }},
    {"token_drift_p", [](DecideOptions& o) -> double& { return o.token_drift_p; }},
    {"token_slope", [](DecideOptions& o) -> double& { return o.token_slope; }},
    {"token_spread", [](DecideOptions& o) -> double& { return o.token_spread; }},
    {"channel_share", [](DecideOptions& o) -> double& { return o.channel_share; }},
    {"plan_power", [](DecideOptions& o) -> double& { return o.plan_power; }},
}};

constexpr std::array<std::pair<std::string_view, Count>, 5> kCounts = {{
    {"documents", [](DecideOptions& o) -> int64_t& { return o.documents; }},
    {"questions_per_document",
     [](DecideOptions& o) -> int64_t& { return o.questions_per_document; }},
    {"aa_documents", [](DecideOptions& o) -> int64_t& { return o.aa_documents; }},
    {"min_documents", [](DecideOptions& o) -> int64_t& { return o.min_documents; }},
    {"max_questions_per_document",
     [](DecideOptions& o) -> int64_t& { return o.max_questions_per_document; }},
}};

constexpr std::array<std::pair<std::string_view, Switch>, 4> kSwitches = {{
    {"strict", [](DecideOptions& o) -> bool& { return o.strict; }},
    {"exhaustive", [](DecideOptions& o) -> bool& { return o.exhaustive; }},
    {"bf16_sides", [](DecideOptions& o) -> bool& { return o.bf16_sides; }},
    {"capacity_needed", [](DecideOptions& o) -> bool& { return o.capacity_needed; }},
}};

template <class Number>
Number number(std::string_view option, std::string_view text, std::string_view what) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error == std::errc() && end == text.data() + text.size()) return out;
  throw ValueError(
      fmt::format("decide: {}: expected {}, found \"{}\"", option, what, std::string(text)));
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t comma = list.find(',');
    out.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    list.remove_prefix(comma + 1);
  }
}

std::map<std::string, double> traffic_of(std::string_view list) {
  std::map<std::string, double> out;
  for (const std::string_view part : parts_of(list)) {
    const size_t colon = part.rfind(':');
    if (colon == std::string_view::npos) {
      throw ValueError(fmt::format("decide: traffic: expected BUCKET:SHARE,..., found \"{}\"",
                                   std::string(part)));
    }
    out[std::string(part.substr(0, colon))] =
        number<double>("traffic", part.substr(colon + 1), "BUCKET:SHARE,...");
  }
  return out;
}

template <class Table>
auto find_in(const Table& table, std::string_view name) {
  return std::ranges::find(table, name, [](const auto& one) { return one.first; });
}

bool switch_of(std::string_view name, std::string_view value) {
  if (value == "true" || value == "false") return value == "true";
  throw ValueError(
      fmt::format("decide: {}: expected true or false, found \"{}\"", name, std::string(value)));
}

}  // namespace

void set_option(DecideOptions& options, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    throw ValueError(
        fmt::format("decide: --set: expected NAME=VALUE, found \"{}\"", std::string(assignment)));
  }
  const std::string_view name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  if (const auto real = find_in(kReals, name); real != kReals.end()) {
    real->second(options) = number<double>(name, value, "a number");
  } else if (const auto count = find_in(kCounts, name); count != kCounts.end()) {
    count->second(options) = number<int64_t>(name, value, "a whole number");
  } else if (const auto flag = find_in(kSwitches, name); flag != kSwitches.end()) {
    flag->second(options) = switch_of(name, value);
  } else if (name == "looks") {
    options.looks.clear();
    for (const std::string_view part : parts_of(value)) {
      options.looks.push_back(number<double>(name, part, "rising shares that end with 1"));
    }
  } else if (name == "traffic") {
    options.traffic = traffic_of(value);
  } else {
    throw ValueError(fmt::format("decide: --set: expected one of {}, found \"{}\"",
                                 fmt::join(option_names(), ", "), std::string(name)));
  }
}

std::vector<std::string> option_assignments(const DecideOptions& options) {
  DecideOptions copy = options;  // the tables' members are references into what they are given
  std::vector<std::string> out;
  const auto add = [&](const auto& table) {
    for (const auto& [name, member] : table)
      out.push_back(fmt::format("{}={}", name, member(copy)));
  };
  add(kReals);
  add(kCounts);
  add(kSwitches);
  out.push_back(fmt::format("looks={}", fmt::join(options.looks, ",")));
  std::vector<std::string> shares;
  for (const auto& [bucket, share] : options.traffic) {
    shares.push_back(fmt::format("{}:{}", bucket, share));
  }
  if (!shares.empty()) out.push_back(fmt::format("traffic={}", fmt::join(shares, ",")));
  return out;
}

std::vector<std::string> option_names() {
  std::vector<std::string> out;
  const auto add = [&](const auto& table) {
    for (const auto& [name, unused] : table) out.emplace_back(name);
  };
  add(kReals);
  add(kCounts);
  add(kSwitches);
  out.insert(out.end(), {"looks", "traffic"});
  return out;
}

}  // namespace kv
