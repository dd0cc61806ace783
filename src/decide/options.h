#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "decide/thresholds.h"
#include "numeric/rounding.h"
#include "ops/attend.h"

namespace kv {

/// What a candidate may lose against BF16 and still be kept, as a share of the score (0.01 = one
/// point).
struct Margins {
  double bucket = thresholds::kBucketMarginStandard;
  double overall = thresholds::kOverallMarginStandard;
  double validity = thresholds::kValidityMarginStandard;
  // Above 0: a bucket, and all of them, must keep this share of the control's mean instead, and
  // may lose (1 - recovery) of it. Validity keeps its own.
  double recovery = 0;
  bool operator==(const Margins&) const = default;
};

/// Command lines that a verdict prints to be pasted; the caller fills them in.
struct Commands {
  std::string repeat;  // this run without margin and size: "kvscale decide MODEL --prompts p.jsonl"
  std::string margin = "--margin standard";  // with the margins that replace the preset's
};

/// By which numbers a run is decided. All are echoed in the verdict.
struct DecideOptions {
  std::string preset = "standard";
  Margins margin;
  double alpha_accept = thresholds::kAlphaAccept;  // one-sided, per candidate
  double alpha_shift = thresholds::kAlphaShift;
  bool strict = false;      // divides alpha_accept by the number of candidates that may be tried
  bool exhaustive = false;  // tries every supported layout, suggested or not
  // Where K or V of a layer alone in BF16 suffices, judges that, even if the target cannot say it.
  bool bf16_sides = false;

  // The plan of one block, per bucket: documents * questions_per_document questions, looked at when
  // these shares of the documents are in.
  std::vector<double> looks = {0.25, 0.5, 1};
  int64_t documents = thresholds::kDocumentsStandard;
  int64_t questions_per_document = thresholds::kQuestionsStandard;
  int64_t aa_documents = thresholds::kAaDocumentsStandard;  // of E1, that the control runs twice
  // A bucket outside these limits stays UNRESOLVED. 0 = any number of questions.
  int64_t min_documents = thresholds::kMinDocumentsStandard;
  int64_t max_questions_per_document = thresholds::kMaxQuestionsStandard;
  std::map<std::string, double> traffic;  // bucket -> share, in any unit; empty = equal shares

  double aa_max_flip = thresholds::kAaMaxFlip;
  double aa_min_p = thresholds::kAaMinP;
  double insensitive_se = thresholds::kInsensitiveSe;
  double capacity_gain_min = thresholds::kCapacityGainMin;
  bool capacity_needed = true;  // more tokens in the same memory are a benefit
  double latency_gain_min = thresholds::kLatencyGainMin;
  double ttft_max = thresholds::kTtftMax;
  double itl_max = thresholds::kItlMax;
  double bf16_share_max = thresholds::kBf16ShareMax;
  double excess_removed = thresholds::kExcessRemoved;
  double offset_noise = thresholds::kDoubtfulNoise;
  double offset_centred_db = thresholds::kOffsetCentredDb;
  double head_gap_db = thresholds::kHeadGapDb;
  double token_clip_frac = thresholds::kTokenClipFrac;
  double token_drift_p = thresholds::kTokenDriftP;
  double token_slope = thresholds::kTokenSlope;
  double token_spread = thresholds::kTokenSpread;
  double channel_share = thresholds::kChannelShare;
  double plan_power = thresholds::kPlanPower;

  // Numerics of every FP8 arm: part of a candidate's identity.
  Math math = Math::kBf16;
  Rounding rounding = Rounding::kNearestEven;
  std::string target = "vllm:flash_attn3";  // the engine that will serve, as in targets

  // The user's prompts had no answers: task scores come from the generators.
  bool tasks_from_generators = false;
  Commands commands;

  /// 2 points per bucket, 1 overall, 0.5 for validity; 250 documents x 4 questions a bucket, looked
  /// at when 250, 500 and 1,000 questions are in.
  static DecideOptions standard();
  /// 5 points per bucket, 2.5 overall, 2 for validity; 50 documents x 4 questions a bucket, one
  /// look.
  static DecideOptions quick();
  /// "standard" or "quick". Throws ValueError for another name.
  static DecideOptions named(std::string_view preset);
};

/// Throws ValueError naming the first option that lies outside its range.
void check_options(const DecideOptions& options);

}  // namespace kv
