#include "endpoint/load_summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kvscale/error.h"
#include "stats/moments.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

double tpot_of(const LoadAnswer& answer) {
  return (answer.e2e_ms - answer.ttft_ms) / static_cast<double>(answer.output_tokens - 1);
}

bool is_good(const LoadAnswer& answer, const Goodput& limits) {
  const auto keeps = [](double limit, double value) { return limit <= 0 || value <= limit; };
  const bool keeps_tpot = answer.output_tokens < 2 || keeps(limits.tpot_ms, tpot_of(answer));
  return keeps_tpot && keeps(limits.ttft_ms, answer.ttft_ms) &&
         keeps(limits.e2el_ms, answer.e2e_ms);
}

void add_spread(OrderedJson& out, const char* what, const TimeSpread& spread) {
  out[fmt::format("mean_{}_ms", what)] = spread.mean;
  out[fmt::format("median_{}_ms", what)] = spread.median;
  out[fmt::format("std_{}_ms", what)] = spread.sd;
  out[fmt::format("p99_{}_ms", what)] = spread.p99;
}

void add_details(OrderedJson& out, const LoadResult& result) {
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "e2els", "errors",
                          "intended_ms", "sent_late_ms"}) {
    out[key] = OrderedJson::array();
  }
  for (const LoadAnswer& one : result.answers) {
    OrderedJson gaps = OrderedJson::array();
    for (const double gap : one.itl_ms) gaps.push_back(gap / 1000);
    out["input_lens"].push_back(one.input_tokens);
    out["output_lens"].push_back(one.output_tokens);
    out["ttfts"].push_back(one.ttft_ms / 1000);
    out["itls"].push_back(std::move(gaps));
    out["e2els"].push_back(one.e2e_ms / 1000);
    out["errors"].push_back(one.error);
    out["intended_ms"].push_back(one.intended_ms);
    out["sent_late_ms"].push_back(one.sent_late_ms);
  }
}

}  // namespace

TimeSpread spread_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  TimeSpread out;
  const auto n = static_cast<double>(values.size());
  for (const double value : values) out.mean += value / n;
  for (const double value : values) out.sd += (value - out.mean) * (value - out.mean) / n;
  out.sd = std::sqrt(out.sd);
  out.median = percentile(values, 0.5);
  out.p99 = percentile(values, 0.99);
  return out;
}

Goodput Goodput::parse(std::string_view text) {
  Goodput out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const size_t colon = std::min(word.find(':'), word.size());
    const std::string_view name = word.substr(0, colon);
    double* limit = name == "ttft"   ? &out.ttft_ms
                    : name == "tpot" ? &out.tpot_ms
                    : name == "e2el" ? &out.e2el_ms
                                     : nullptr;
    const char* stop = word.data() + word.size();
    const char* number = word.data() + std::min(colon + 1, word.size());
    const bool is_read = limit != nullptr && std::from_chars(number, stop, *limit).ptr == stop;
    if (is_read && *limit > 0 && std::isfinite(*limit)) continue;
    throw ValueError(
        fmt::format("goodput: expected ttft:MS, tpot:MS or e2el:MS, found \"{}\"", word));
  }
  return out;
}

LoadSummary summarize_load(const LoadResult& result, const Goodput& goodput) {
  LoadSummary out;
  if (goodput.has_limits()) out.good = 0;
  std::vector<double> ttft, tpot, itl, e2el;
  for (const LoadAnswer& one : result.answers) {
    out.sent_late_ms = std::max(out.sent_late_ms, one.sent_late_ms);
    if (!one.error.empty()) {
      ++out.failed;
      continue;
    }
    ++out.completed;
    out.input_tokens += one.input_tokens;
    out.output_tokens += one.output_tokens;
    if (out.good && is_good(one, goodput)) ++*out.good;
    ttft.push_back(one.ttft_ms);
    e2el.push_back(one.e2e_ms);
    if (one.output_tokens > 1) tpot.push_back(tpot_of(one));
    itl.insert(itl.end(), one.itl_ms.begin(), one.itl_ms.end());
  }
  out.duration_s = result.duration_ms / 1000;
  out.ttft_ms = spread_of(ttft);
  out.tpot_ms = spread_of(tpot);
  out.itl_ms = spread_of(itl);
  out.e2el_ms = spread_of(e2el);
  return out;
}

nlohmann::ordered_json load_json(const LoadResult& result, const LoadSummary& summary,
                                 bool is_detailed) {
  OrderedJson out = {
      {"duration", summary.duration_s},
      {"completed", summary.completed},
      {"failed", summary.failed},
      {"total_input_tokens", summary.input_tokens},
      {"total_output_tokens", summary.output_tokens},
      {"request_throughput", summary.per_second(summary.completed)},
      {"output_throughput", summary.output_throughput()},
      {"total_token_throughput", summary.per_second(summary.input_tokens + summary.output_tokens)}};
  if (summary.good) out["request_goodput"] = summary.per_second(*summary.good);
  add_spread(out, "ttft", summary.ttft_ms);
  add_spread(out, "tpot", summary.tpot_ms);
  add_spread(out, "itl", summary.itl_ms);
  add_spread(out, "e2el", summary.e2el_ms);
  out["latest_send_ms"] = summary.sent_late_ms;
  if (is_detailed) add_details(out, result);
  return out;
}

}  // namespace kv
