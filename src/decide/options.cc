#include "decide/options.h"

#include <fmt/ranges.h>

#include <cmath>

#include "decide/look_plan.h"
#include "kvscale/error.h"

namespace kv {
namespace {

void expect_open_unit(const char* option, double value) {
  if (value > 0 && value < 1) return;
  throw ValueError(
      fmt::format("decide: {}: expected a number between 0 and 1, found {}", option, value));
}

void expect_at_least(const char* option, double value, double least) {
  if (value >= least && std::isfinite(value)) return;
  throw ValueError(fmt::format("decide: {}: expected at least {}, found {}", option, least, value));
}

}  // namespace

DecideOptions DecideOptions::standard() { return {}; }

DecideOptions DecideOptions::quick() {
  DecideOptions out;
  out.preset = "quick";
  out.commands.margin = "--margin quick";
  out.margin = {thresholds::kBucketMarginQuick, thresholds::kOverallMarginQuick,
                thresholds::kValidityMarginQuick};
  out.looks = {1};
  out.documents = thresholds::kDocumentsQuick;
  out.questions_per_document = thresholds::kQuestionsQuick;
  out.aa_documents = thresholds::kAaDocumentsQuick;
  out.min_documents = thresholds::kMinDocumentsQuick;
  out.max_questions_per_document = 0;
  return out;
}

DecideOptions DecideOptions::named(std::string_view preset) {
  if (preset == "standard") return standard();
  if (preset == "quick") return quick();
  throw ValueError(fmt::format("margin: expected standard or quick, found \"{}\"", preset));
}

void check_options(const DecideOptions& options) {
  expect_open_unit("margin.bucket", options.margin.bucket);
  expect_open_unit("margin.overall", options.margin.overall);
  expect_open_unit("margin.validity", options.margin.validity);
  if (options.margin.recovery != 0) expect_open_unit("margin.recovery", options.margin.recovery);
  // Half and more would call a candidate not worse without evidence.
  if (!(options.alpha_accept > 0 && options.alpha_accept < 0.5)) {
    throw ValueError(fmt::format("decide: alpha.accept: expected between 0 and 0.5, found {}",
                                 options.alpha_accept));
  }
  expect_open_unit("alpha.shift", options.alpha_shift);
  expect_open_unit("aa.min_p", options.aa_min_p);
  expect_open_unit("bf16_share_max", options.bf16_share_max);
  expect_open_unit("excess_removed", options.excess_removed);
  expect_open_unit("plan_power", options.plan_power);
  expect_at_least("aa.max_flip", options.aa_max_flip, 0);
  expect_at_least("insensitive_se", options.insensitive_se, 0);
  expect_at_least("offset_noise", options.offset_noise, 0);
  expect_at_least("offset_centred_db", options.offset_centred_db, -400);
  expect_at_least("head_gap_db", options.head_gap_db, 0);
  expect_at_least("token_clip_frac", options.token_clip_frac, 0);
  expect_open_unit("token_drift_p", options.token_drift_p);
  expect_at_least("token_slope", options.token_slope, 0);
  expect_at_least("token_spread", options.token_spread, 1);
  expect_open_unit("channel_share", options.channel_share);
  expect_at_least("max_questions_per_document",
                  static_cast<double>(options.max_questions_per_document), 0);
  expect_at_least("gain.capacity_min", options.capacity_gain_min, 1);
  expect_at_least("harm.ttft_max", options.ttft_max, 0);
  expect_at_least("harm.itl_max", options.itl_max, 0);
  expect_open_unit("gain.latency_min", options.latency_gain_min);
  expect_at_least("documents", static_cast<double>(options.documents), 2);
  expect_at_least("aa_documents", static_cast<double>(options.aa_documents), 2);
  expect_at_least("questions_per_document", static_cast<double>(options.questions_per_document), 1);
  // Two documents are the least that say something about the spread between documents.
  expect_at_least("min_documents", static_cast<double>(options.min_documents), 2);
  if (options.looks.empty() || options.looks.back() != 1) {
    throw ValueError(fmt::format("decide: looks: expected rising shares that end with 1, found {}",
                                 fmt::join(options.looks, ", ")));
  }
  plan_looks(options.looks, options.alpha_accept, options.alpha_shift);  // throws for the others
  for (const auto& [bucket, share] : options.traffic) {
    if (share > 0 && std::isfinite(share)) continue;
    throw ValueError(
        fmt::format("decide: traffic of bucket {}: expected more than 0, found {}", bucket, share));
  }
}

}  // namespace kv
