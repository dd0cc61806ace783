#include "decide/verdict_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace kv {
namespace {

// Keys stay in the order in which they are written: what a reader wants first comes first.
using OrderedJson = nlohmann::ordered_json;

OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson interval(const Interval& one) {
  return OrderedJson::array({number(one.lo), number(one.hi)});
}

OrderedJson margins(const DecideOptions& options) {
  return {{"preset", options.preset},
          {"bucket", options.margin.bucket},
          {"overall", options.margin.overall},
          {"validity", options.margin.validity},
          {"recovery", options.margin.recovery}};
}

OrderedJson thresholds_used(const DecideOptions& options) {
  return {{"alpha.accept", options.alpha_accept},
          {"alpha.shift", options.alpha_shift},
          {"strict", options.strict},
          {"exhaustive", options.exhaustive},
          {"bf16_sides", options.bf16_sides},
          {"looks", options.looks},
          {"documents", options.documents},
          {"questions_per_document", options.questions_per_document},
          {"aa_documents", options.aa_documents},
          {"min_documents", options.min_documents},
          {"max_questions_per_document", options.max_questions_per_document},
          {"traffic", options.traffic},
          {"aa.max_flip", options.aa_max_flip},
          {"aa.min_p", options.aa_min_p},
          {"insensitive_se", options.insensitive_se},
          {"gain.capacity_min", options.capacity_gain_min},
          {"capacity_needed", options.capacity_needed},
          {"gain.latency_min", options.latency_gain_min},
          {"harm.ttft_max", options.ttft_max},
          {"harm.itl_max", options.itl_max},
          {"harm.traffic_share", thresholds::kHarmTrafficShare},
          {"timing_noise", thresholds::kTimingNoise},
          {"timing_runs", thresholds::kTimingRuns},
          {"bf16_share_max", options.bf16_share_max},
          {"excess_removed", options.excess_removed},
          {"offset_noise", options.offset_noise},
          {"offset_centred_db", options.offset_centred_db},
          {"head_gap_db", options.head_gap_db},
          {"token_clip_frac", options.token_clip_frac},
          {"token_slope", options.token_slope},
          {"token_spread", options.token_spread},
          {"channel_share", options.channel_share},
          {"heterogeneity_p", thresholds::kHeterogeneityP},
          {"calibration_tv", thresholds::kCalibrationTv},
          {"token_drift_p", options.token_drift_p},
          {"calibration_length_quantile", thresholds::kCalibrationLengthQuantile},
          {"calibration_length_slack", thresholds::kCalibrationLengthSlack},
          {"calibration_question_tokens", thresholds::kCalibrationQuestionTokens},
          {"plan_confidence", thresholds::kPlanConfidence},
          {"plan_power", options.plan_power}};
}

OrderedJson bucket(const BucketRow& row) {
  return {{"record", row.id},
          {"bucket", row.bucket},
          {"n", row.n},
          {"documents", row.documents},
          {"max_questions", row.max_questions},
          {"mean_prompt_tokens", number(row.mean_prompt_tokens)},
          {"is_binary", row.is_binary},
          {"deff", number(row.deff)},
          {"b", row.losses},
          {"c", row.gains},
          {"mean_ctrl", number(row.mean_ctrl)},
          {"mean_cand", number(row.mean_cand)},
          {"diff", number(row.diff)},
          {"half1_diff", number(row.half_diffs[0])},
          {"half2_diff", number(row.half_diffs[1])},
          {"se_iid", number(row.se_iid)},
          {"se_cr1", number(row.se_cr1)},
          {"interval", interval(row.interval)},
          {"flips", number((row.losses + row.gains) / static_cast<double>(row.n))},
          {"margin", row.margin},
          {"p_ni", number(row.p_ni)},
          {"p_equiv_upper", number(row.p_equiv_upper)},
          {"p_loss", number(row.p_loss)},
          {"p_loss_holm", number(row.p_loss_holm)},
          {"validity_ctrl", number(row.validity_ctrl)},
          {"validity_cand", number(row.validity_cand)},
          {"verdict", name(row.verdict)},
          {"note", row.note},
          {"n_required", number(row.n_required)}};
}

OrderedJson overall(const OverallRow& row) {
  return {{"record", row.id},
          {"n", row.n},
          {"documents", row.documents},
          {"deff", number(row.deff)},
          {"b", row.losses},
          {"c", row.gains},
          {"mean_ctrl", number(row.mean_ctrl)},
          {"mean_cand", number(row.mean_cand)},
          {"diff", number(row.diff)},
          {"half1_diff", number(row.half_diffs[0])},
          {"half2_diff", number(row.half_diffs[1])},
          {"interval", interval(row.interval)},
          {"margin", row.margin},
          {"p_ni", number(row.p_ni)},
          {"p_loss", number(row.p_loss)},
          {"p_loss_holm", number(row.p_loss_holm)},
          {"verdict", name(row.verdict)},
          {"n_required", number(row.n_required)}};
}

OrderedJson control(const ControlBucket& row) {
  return {
      {"record", row.id},           {"bucket", row.bucket},         {"n", row.n},
      {"documents", row.documents}, {"flips", row.flips},           {"mean_ctrl", number(row.mean)},
      {"se_cr1", number(row.se)},   {"chance", number(row.chance)}, {"is_kept", row.is_kept}};
}

template <class List, class Write>
OrderedJson list(const List& items, Write write) {
  OrderedJson out = OrderedJson::array();
  for (const auto& item : items) out.push_back(write(item));
  return out;
}

OrderedJson launch(const Verdict& verdict) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [engine, lines] : verdict.launch) {
    out[engine] = {{"flags", lines.flags}, {"notes", lines.notes}};
  }
  return out;
}

OrderedJson divergence_row(const DivergenceRow& row) {
  return {{"block", row.block},
          {"arm", row.arm},
          {"bucket", row.bucket},
          {"is_sampled", row.is_sampled},
          {"n", row.n},
          {"documents", row.documents},
          {"diverged", row.diverged},
          {"near_ties", row.near_ties},
          {"exact_match_rate", number(row.exact_match_rate)},
          {"hazard", number(row.hazard)},
          {"longest", row.longest},
          {"median", row.median ? OrderedJson(*row.median) : OrderedJson(nullptr)},
          {"agreeing", number(row.agreeing)},
          {"agreeing_interval", interval(row.agreeing_interval)},
          {"undamaged", number(row.undamaged)},
          {"undamaged_interval", interval(row.undamaged_interval)},
          {"curve", list(row.curve, [](const DivergencePoint& point) -> OrderedJson {
             return {{"index", point.index},
                     {"at_risk", point.at_risk},
                     {"diverged", point.diverged},
                     {"survival", number(point.survival)},
                     {"interval", interval(point.interval)}};
           })}};
}

}  // namespace

OrderedJson divergence_json(const std::vector<DivergenceRow>& rows) {
  return {{"near_tie", thresholds::kNearTie}, {"rows", list(rows, divergence_row)}};
}

OrderedJson table_json(const ArmTable& one) {
  OrderedJson rows = OrderedJson::array();
  for (const BucketRow& row : one.buckets) rows.push_back(bucket(row));
  return {{"block", one.block},
          {"arm", one.arm},
          {"reference", one.reference},
          {"alpha", one.look.alpha},
          {"look", one.look.number},
          {"looks", one.look.of},
          {"bound_c", one.look.bound},
          {"is_pass", one.is_pass},
          {"is_material", one.is_material},
          {"shift", name(one.shift)},
          {"overall", overall(one.overall)},
          {"validity", overall(one.validity)},
          {"p_sign", number(one.p_sign)},
          {"p_sign_holm", number(one.p_sign_holm)},
          {"p_trend", number(one.p_trend)},
          {"p_trend_holm", number(one.p_trend_holm)},
          {"p_heterogeneity", number(one.p_heterogeneity)},
          {"trend_slope", number(one.curve.trend_slope)},
          {"sign_negative", one.curve.negative_buckets},
          {"sign_nonzero", one.curve.nonzero_buckets},
          {"q", number(one.curve.q)},
          {"recovery", number(one.curve.recovery)},
          {"recovery_interval", interval(one.curve.recovery_interval)},
          {"auc_ctrl", number(one.curve.auc_ctrl)},
          {"auc_cand", number(one.curve.auc_cand)},
          {"buckets", rows}};
}

std::string verdict_json(const Verdict& verdict) {
  OrderedJson out;
  out["outcome"] = name(verdict.outcome);
  out["sub_reason"] = verdict.sub_reason;
  out["sentence"] = verdict.sentence;
  out["layout"] = verdict.layout.empty() ? OrderedJson(nullptr) : OrderedJson(verdict.layout);
  out["bf16_layers"] = verdict.bf16_layers;
  out["margin"] = margins(verdict.options);
  out["exit_code"] = verdict.exit_code;
  out["n_required"] = number(verdict.n_required);
  out["capacity_gain"] = number(verdict.capacity_gain);
  out["tasks_from_generators"] = verdict.tasks_from_generators;
  out["target"] = verdict.options.target;
  out["launch"] = launch(verdict);
  out["next"] = list(verdict.next, [](const NextCommand& one) -> OrderedJson {
    return {{"command", one.command}, {"text", one.text}};
  });
  out["notices"] = verdict.notices;
  out["dropped_buckets"] = verdict.dropped_buckets;
  out["reasons"] = list(verdict.reasons, [](const Reason& one) -> OrderedJson {
    return {{"rule", one.rule}, {"record", one.record}, {"text", one.text}};
  });
  out["state_trace"] = list(verdict.state_trace, [](const TraceEntry& one) -> OrderedJson {
    return {{"state", one.state}, {"block", one.block}, {"arm", one.arm}, {"event", one.event}};
  });
  out["aa"] = {{"record", "AA/bf16#2"},
               {"flips", number(verdict.aa_flips)},
               {"p_two_sided", number(verdict.aa_p)},
               {"kld", number(verdict.aa_kld.value_or(NAN))},
               {"buckets", list(verdict.control, control)}};
  out["tables"] = list(verdict.tables, table_json);
  out["ablation"] = list(verdict.ablation, [](const AblationPoint& one) -> OrderedJson {
    return {{"arm", one.arm},
            {"record", one.record},
            {"bf16_layers", one.bf16_layers},
            {"kld", number(one.kld)},
            {"share_removed", number(one.share_removed)}};
  });
  // Runs of before there were records of generations have none, and their file stays as it was.
  if (!verdict.divergence.empty()) out["divergence"] = divergence_json(verdict.divergence);
  if (!verdict.count_errors.empty()) {
    out["count_errors"] = list(verdict.count_errors, [](const CountErrorRow& one) -> OrderedJson {
      return {{"block", one.block},
              {"arm", one.arm},
              {"bucket", one.bucket},
              {"n", one.n},
              {"mean", number(one.mean)}};
    });
  }
  out["thresholds"] = thresholds_used(verdict.options);
  return out.dump(2) + "\n";
}

}  // namespace kv
