#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "decide/machine.h"
#include "stats/moments.h"

namespace kv {
namespace {

/// The length that calibration must reach: a high percentile of the control's prompts.
double needed_length(const std::vector<const ExampleRecord*>& examples) {
  std::vector<double> lengths;
  for (const ExampleRecord* one : examples) {
    lengths.push_back(static_cast<double>(one->prompt_tokens));
  }
  return percentile(std::move(lengths), thresholds::kCalibrationLengthQuantile);
}

}  // namespace

std::optional<Step> Machine::need_calibration(const std::string& state) {
  if (records_.calibrations.empty()) {
    return Ask{.state = state,
               .kind = AskKind::kCalibration,
               .block = "CAL",
               .arms = {text(ArmLayout::kFp8Tensor), text(ArmLayout::kFp8Head)},
               .buckets = buckets_,
               .documents = options_.documents,
               .questions_per_document = options_.questions_per_document,
               .reason = "static scales from a block of its own"};
  }
  const CalibrationRecord& record = records_.calibrations.back();
  for (const std::string& warning : record.warnings) {
    const std::string notice = "calibration: " + warning;
    if (std::ranges::find(verdict_.notices, notice) == verdict_.notices.end()) {
      verdict_.notices.push_back(notice);
    }
  }
  const double needed = needed_length(examples_.of("AA", std::string(kControlArm)));
  const double least =
      needed * thresholds::kCalibrationLengthSlack - thresholds::kCalibrationQuestionTokens;
  const bool is_long_enough = static_cast<double>(record.max_tokens) >= least;
  std::string what = calibration_mismatch(contexts_of("CAL"), contexts_of("E1"));
  if (record.examples == 0 || !is_long_enough) {
    what = fmt::format(
        "LENGTH_EXTRAPOLATION: the longest of {} calibration examples has {} tokens, the "
        "evaluation's 95th length percentile is {:.0f}",
        record.examples, record.max_tokens, needed);
  }
  if (what.empty()) return std::nullopt;
  verdict_.reasons.push_back({"CALIBRATION_SET", record.record_id, what});
  trace(state, "CAL", "", "CALIBRATION_SET");
  return inconclusive("CALIBRATION_SET", what);
}

/// All of block CAL; of an evaluated block those of the buckets that are still in and of the looks
/// that are finished, so that a run that stopped inside one goes on as if it had not.
AmaxRecords Machine::contexts_of(const std::string& block) const {
  const std::string control(kControlArm);
  int64_t finished = 0;
  while (finished < std::ssize(options_.looks) && is_finished(block, control, finished + 1)) {
    ++finished;
  }
  std::set<std::string_view> known;
  for (const ExampleRecord* one : examples_.of(block, control)) {
    if (one->look <= finished) known.insert(one->example_id);
  }
  AmaxRecords out;
  for (const AmaxRecord& one : records_.amaxes) {
    const bool is_in = std::ranges::find(buckets_, one.bucket) != buckets_.end();
    const bool counts = block == "CAL" || (is_in && known.contains(one.example_id));
    if (one.block == block && counts) out.push_back(&one);
  }
  return out;
}

/// Once a calibrated arm has run on a block: do its contexts stay within what calibration saw?
void Machine::test_representative(const std::string& block) {
  if (is_tested_ || records_.calibrations.empty()) return;
  is_tested_ = true;
  const std::vector<Exceedance> tests = test_calibration(contexts_of("CAL"), contexts_of(block));
  if (tests.empty()) {
    verdict_.notices.emplace_back(
        "whether the calibration set represents what is evaluated was not tested: what the cache "
        "stored of evaluated contexts was not recorded");
    return;
  }
  has_token_drift_ = tests.front().p_holm < options_.token_drift_p;
  const std::string text = not_representative_text(tests, thresholds::kAlphaShift);
  if (text.empty()) return;
  verdict_.notices.push_back(text);
  verdict_.reasons.push_back(
      {"CAL_NOT_REPRESENTATIVE", records_.calibrations.back().record_id, text});
}

Step Machine::screen() {
  const auto first = std::ranges::find_if(layouts(), [&](ArmLayout layout) {
    return std::ranges::find(supported_, layout) != supported_.end() && !out_.contains(layout);
  });
  const ArmSpec candidate = arm(*first);
  weak_ = buckets_;
  if (!is_usable(*first)) {
    trace("SCREEN", "", candidate.text(), "NUMERIC_FAULT -> CALIBRATE");
    return calibrate();
  }
  if (candidate.needs_scales()) {
    if (auto step = need_calibration("SCREEN")) return *step;
  }
  for (const Look& look : looks("E1", options_.alpha_accept)) {
    if (auto ask = need_quality(
            "SCREEN", "E1", {std::string(kControlArm), candidate.text()}, look,
            fmt::format("the cheapest layout that runs, {}, against BF16", candidate.text()))) {
      return *ask;
    }
    if (candidate.needs_scales()) test_representative("E1");
    const Comparison screened =
        run_comparison("E1", candidate.text(), std::string(kControlArm), look);
    if (screened.table.is_open() && !look.is_last()) {
      trace_open("SCREEN", screened.table);
      continue;
    }
    explain(screened);
    if (screened.table.is_pass) {
      trace("SCREEN", "E1", candidate.text(), at_look(look) + "Q_PASS -> SYSTEMS");
      return systems(candidate, screened);
    }
    if (screened.table.is_open()) {
      trace("SCREEN", "E1", candidate.text(), at_look(look) + "Q_OPEN");
      return too_few(
          fmt::format("{} on E1 is neither shown to be harmless nor to lose", candidate.text()),
          questions_required(screened.table));
    }
    weak_ = weak_buckets(screened.table);
    trace(
        "SCREEN", "E1", candidate.text(),
        fmt::format("{}{} in {} -> CALIBRATE", at_look(look),
                    screened.table.is_material ? "Q_MATERIAL" : "Q_SHIFT", fmt::join(weak_, " ")));
    break;
  }
  return calibrate();
}

Step Machine::calibrate() {
  if (layouts().front() == ArmLayout::kQ8Block) {
    trace("CALIBRATE", "", "", "q8_0 has no scales to calibrate and no finer layout");
    return reject("QUALITY", "q8_0 loses, and llama-server has no other cache of 8 bits");
  }
  if (!is_usable(ArmLayout::kFp8Tensor)) {
    trace("CALIBRATE", "", "", "one calibrated scale per layer does not run -> LOCALISE");
    return localise();
  }
  if (auto step = need_calibration("CALIBRATE")) return *step;
  for (const Look& look : looks("E2", options_.alpha_accept)) {
    if (auto step = calibrate_at(look)) return *step;
  }
  return localise();
}

/// One look at E2. Nothing: go on, to the next look or, after the last one, to LOCALISE.
std::optional<Step> Machine::calibrate_at(const Look& look) {
  if (is_localising_) return std::nullopt;  // an earlier look sent it there
  const auto first = std::ranges::find_if(layouts(), [&](ArmLayout one) { return is_usable(one); });
  const bool has_screened = *first != ArmLayout::kFp8Tensor;
  const std::string first_text = text(*first);
  std::vector<std::string> arms = {std::string(kControlArm)};
  if (has_screened) arms.push_back(first_text);
  arms.push_back(text(ArmLayout::kFp8Tensor));
  if (auto ask = need_quality("CALIBRATE", "E2", arms, look,
                              "whether the loss repeats on fresh examples, and whether calibrated "
                              "scales undo it")) {
    return *ask;
  }
  test_representative("E2");
  if (has_screened) {
    const Comparison screened = run_comparison("E2", first_text, std::string(kControlArm), look);
    if (screened.table.is_pass) {
      explain(screened);
      trace("CALIBRATE", "E2", first_text,
            at_look(look) + "Q_PASS, SHIFT_NOT_REPLICATED -> SYSTEMS");
      verdict_.reasons.push_back({"SHIFT_NOT_REPLICATED", screened.table.overall.id,
                                  "the loss seen on E1 is not there on fresh examples"});
      return systems(arm(*first), screened);
    }
  }
  return judge_calibrated(look, has_screened ? first_text : "");
}

/// Whether the layout that lost on E1 may yet turn out not to lose on E2.
bool Machine::is_still_open(const std::string& screened, const Look& look) {
  return !screened.empty() &&
         run_comparison("E2", screened, std::string(kControlArm), look).table.is_open();
}

/// C2 on E2, against BF16 and against the layout that lost on E1 ("" where there is none).
std::optional<Step> Machine::judge_calibrated(const Look& look, const std::string& screened) {
  const std::string tensor = text(ArmLayout::kFp8Tensor), control(kControlArm);
  const Comparison calibrated = run_comparison("E2", tensor, control, look);
  const ArmTable& table = calibrated.table;
  const auto keep_tables = [&] {
    if (!screened.empty()) explain(run_comparison("E2", screened, control, look));
    explain(calibrated);
  };
  if (table.is_pass && screened.empty()) {
    keep_tables();
    trace("CALIBRATE", "E2", tensor, at_look(look) + "Q_PASS -> SYSTEMS");
    return systems(arm(ArmLayout::kFp8Tensor), calibrated);
  }
  bool has_regression = false;
  if (table.is_pass) {
    const Comparison gain = run_comparison("E2", tensor, screened, look);
    has_regression = !has_no_regression(gain.table, weak_);
    const Improvement better = test_improvement(options_, gain, weak_);
    const bool is_done = !has_regression && better.is_shown;
    if (!is_done && !look.is_last()) {
      trace("CALIBRATE", "E2", tensor, at_look(look) + "Q_PASS, gain not shown -> next look");
      return std::nullopt;
    }
    keep_tables();
    verdict_.tables.push_back(gain.table);
    const std::string shown =
        fmt::format("{} is {:+.2f} points better than {} in {} (one-sided p {:.2g}, {} questions)",
                    tensor, 100 * better.diff, screened, fmt::join(weak_, " "), better.p, better.n);
    if (is_done) {
      verdict_.reasons.push_back({"BETTER", gain.table.overall.id, shown});
      trace("CALIBRATE", "E2", tensor, at_look(look) + "Q_PASS, NOREG, BETTER -> SYSTEMS");
      return systems(arm(ArmLayout::kFp8Tensor), calibrated);
    }
    if (!has_regression) {
      verdict_.reasons.push_back({"CALIBRATION_GAIN_UNPROVEN", gain.table.overall.id, shown});
      trace("CALIBRATE", "E2", tensor, at_look(look) + "Q_PASS, NOREG, not BETTER");
      return inconclusive(
          "CALIBRATION_GAIN_UNPROVEN",
          "calibrated scales are harmless, but that they undo the loss is not shown",
          better.n_required);
    }
  } else if (!look.is_last() && (table.is_open() || is_still_open(screened, look))) {
    trace_open("CALIBRATE", table);
    return std::nullopt;
  } else {
    keep_tables();
  }
  if (table.is_open()) {
    trace("CALIBRATE", "E2", tensor, at_look(look) + "Q_OPEN");
    return too_few(fmt::format("{} on E2 is neither shown to be harmless nor to lose", tensor),
                   questions_required(table));
  }
  weak_ = has_regression ? weak_ : weak_buckets(table);
  is_localising_ = true;
  trace("CALIBRATE", "E2", tensor,
        fmt::format("{}{} -> LOCALISE", at_look(look),
                    has_regression      ? "Q_PASS with a regression"
                    : table.is_material ? "Q_MATERIAL"
                                        : "Q_SHIFT"));
  return std::nullopt;
}

}  // namespace kv
