#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decide/divergence.h"
#include "decide/look_plan.h"
#include "decide/options.h"
#include "stats/intervals.h"
#include "stats/shift.h"
#include "stats/trend.h"

namespace kv {

enum class Outcome {
  kKeepScaleOne,
  kCalibratePerTensor,
  kStaticPerHead,
  kDynamicPerTokenHead,
  kSelectiveBf16,
  kKeepQ8,  // llama.cpp's q8_0, which is not FP8
  kRejectFp8,
  kRejectQ8,
  kInconclusive,
};

/// "KEEP_SCALE_ONE", "CALIBRATE_PER_TENSOR", ..., "INCONCLUSIVE".
std::string_view name(Outcome outcome);
inline bool is_accepting(Outcome outcome) { return outcome < Outcome::kRejectFp8; }
inline bool is_rejecting(Outcome outcome) {
  return outcome == Outcome::kRejectFp8 || outcome == Outcome::kRejectQ8;
}

/// One bucket of a paired comparison: arm minus reference, a loss is negative.
struct BucketRow {
  // "E1/fp8_scale1/512", against another than the control "E2/fp8_tensor-fp8_scale1/512": what a
  // reason names as its record.
  std::string id;
  std::string bucket;
  int64_t n = 0, documents = 0, max_questions = 0;
  double mean_prompt_tokens = 0;
  bool is_binary = false;
  double losses = 0, gains = 0;  // examples; undivided
  double deff = 1;
  double mean_ctrl = 0, mean_cand = 0, diff = 0;
  std::array<double, 2> half_diffs = {};  // of the two replicate halves
  double se_iid = 0, se_cr1 = 0;
  Interval interval;  // at 1 - 2 alpha over all looks
  double margin = 0, p_ni = 1, p_equiv_upper = 1, p_loss = 1, p_loss_holm = 1;
  double validity_ctrl = 1, validity_cand = 1;  // shares of valid answers
  BucketVerdict verdict = BucketVerdict::kUnresolved;
  std::string note;       // "TOO_FEW_CLUSTERS: 20 documents, 30 needed"
  double n_required = 0;  // questions for NON_INFERIOR at the planned power if there is no loss
};

/// All buckets together, or their validity.
struct OverallRow {
  std::string id;  // "E1/fp8_scale1/overall"
  int64_t n = 0, documents = 0;
  double losses = 0, gains = 0, deff = 1;
  double mean_ctrl = 0, mean_cand = 0, diff = 0;
  std::array<double, 2> half_diffs = {};
  Interval interval;
  double margin = 0, p_ni = 1, p_loss = 1, p_loss_holm = 1;
  BucketVerdict verdict = BucketVerdict::kUnresolved;
  double n_required = 0;  // questions per bucket
};

/// What the buckets say together beside their p-values.
struct LengthCurve {
  double trend_slope = 0;                             // score per doubling of the length
  double q = 0;                                       // heterogeneity of the buckets, chi-square
  int64_t negative_buckets = 0, nonzero_buckets = 0;  // of the sign test
  // Area under the curve of means over tokens; summaries that can hide a loss in one bucket. NaN
  // with one length.
  double auc_ctrl = 0, auc_cand = 0;
  double recovery = 0;         // mean of the arm over mean of the reference, by traffic
  Interval recovery_interval;  // 95 %, delta method on the logarithm, clustered by document
};

/// One arm against one reference on one block.
struct ArmTable {
  std::string block, arm, reference;
  Look look;  // which decided, and its level
  std::vector<BucketRow> buckets;
  OverallRow overall, validity;
  double p_sign = 1, p_sign_holm = 1, p_trend = 1, p_trend_holm = 1, p_heterogeneity = 1;
  LengthCurve curve;
  ShiftType shift = ShiftType::kNone;  // of a persistent shift
  bool is_pass = false, is_material = false;
  bool is_beyond_margin = false;  // some bucket's estimate, or the overall one

  /// Before the last look only a shift that would matter ends the comparison.
  bool is_shift() const {
    return shift != ShiftType::kNone && !is_pass && (look.is_last() || is_beyond_margin);
  }
  bool is_open() const { return !is_pass && !is_material && !is_shift(); }
};

struct Reason {
  std::string rule;    // "Q_PASS", "INSENSITIVE", "OFFSET", ...
  std::string record;  // id of a record or of a table's row
  std::string text;    // with n, unit and interval
};

struct TraceEntry {
  std::string state;  // "SCREEN"
  std::string block, arm;
  std::string event;  // "Q_PASS -> SYSTEMS"
};

/// The control on block AA, where it is run twice: is the bucket fit to show a loss?
struct ControlBucket {
  std::string id;  // "AA/bf16/512"
  std::string bucket;
  int64_t n = 0, documents = 0, flips = 0;
  double mean = 0, se = 0, chance = 0;
  bool is_kept = true;
};

/// KLD over E2 of a base that keeps a prefix of layers in BF16.
struct AblationPoint {
  std::string arm, record;
  int bf16_layers = 0;
  double kld = 0, share_removed = 0;
};

struct NextCommand {
  std::string command;  // to be pasted
  std::string text;     // why, with block, buckets, questions per bucket and expected power
};

/// How the accepted arm is launched on one engine.
struct LaunchLines {
  std::string flags;
  std::vector<std::string> notes;
};

struct Verdict {
  Outcome outcome = Outcome::kInconclusive;
  std::string sub_reason;  // "INSUFFICIENT_SAMPLES", "NO_SYSTEMS_GAIN: CAPACITY"; empty on accept
  std::string layout;      // the accepted arm as spelled on the command line; empty otherwise
  std::vector<int> bf16_layers;
  DecideOptions options;  // margins, alpha, thresholds as used
  bool tasks_from_generators = false;
  double n_required = 0;  // questions per bucket; INCONCLUSIVE only
  double capacity_gain = 0;
  double aa_flips = 0, aa_p = 1;
  std::optional<double> aa_kld;  // nats; when the logits of the repeat were recorded
  std::vector<ControlBucket> control;
  std::string sentence;  // the verdict in one sentence
  std::vector<Reason> reasons;
  std::vector<std::string> notices;
  std::vector<TraceEntry> state_trace;
  std::vector<std::string> dropped_buckets;
  std::vector<ArmTable> tables;
  std::vector<AblationPoint> ablation;
  std::vector<DivergenceRow> divergence;    // describes, decides nothing
  std::vector<CountErrorRow> count_errors;  // likewise
  std::vector<NextCommand> next;
  std::map<std::string, LaunchLines> launch;  // engine -> flags
  int exit_code = 0;
};

}  // namespace kv
