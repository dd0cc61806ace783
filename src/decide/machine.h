#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decide/calibration_set.h"
#include "decide/decide.h"
#include "decide/localise.h"
#include "decide/pairs.h"
#include "decide/quality.h"
#include "decide/timing.h"
#include "engine/arm.h"

namespace kv {

/// The FP8 layouts, cheapest in metadata first: the order in which they are tried.
inline constexpr std::array<ArmLayout, 4> kFp8Layouts = {
    ArmLayout::kFp8Scale1, ArmLayout::kFp8Tensor, ArmLayout::kFp8Head, ArmLayout::kFp8TokenHead};

/// What is compared for a target, in the order in which it is tried: the FP8 layouts, or of an
/// engine that has none its own 8-bit layout.
std::span<const ArmLayout> decided_layouts(std::string_view target);

/// "look 2 of 3: ", or nothing where there is one.
std::string at_look(const Look& look);

/// One walk through the states, from PREFLIGHT on, as far as the evidence goes. Every state returns
/// a step, or nothing when the walk goes on.
class Machine {
 public:
  Machine(const DecideOptions& options, const Evidence& evidence);
  Step run();

 private:
  // states_start.cc: what must hold before anything is compared.
  std::optional<Step> preflight();
  std::optional<Step> find_support();
  std::optional<Step> read_facts();
  std::optional<Step> control_twice();
  std::optional<Step> judge_repeat(const std::vector<PairedBucket>& pairs);
  std::optional<Step> drop_insensitive(const std::vector<PairedBucket>& pairs);

  // states_screen.cc: the first layout, then one calibrated scale per layer.
  Step screen();
  Step calibrate();
  std::optional<Step> calibrate_at(const Look& look);
  bool is_still_open(const std::string& screened, const Look& look);
  std::optional<Step> judge_calibrated(const Look& look, const std::string& screened);
  std::optional<Step> need_calibration(const std::string& state);
  AmaxRecords contexts_of(const std::string& block) const;
  void test_representative(const std::string& block);

  // states_localise.cc: where the loss sits, and trials of what that suggests.
  Step localise();
  std::span<const ArmLayout> layouts() const { return decided_layouts(options_.target); }
  std::optional<Step> try_selective(ArmLayout base);
  std::optional<Step> try_arm(const ArmSpec& candidate);
  std::optional<Step> try_launchable(const ArmSpec& candidate);
  void end_trial(const ArmTable& table, const ArmTable* against);
  Step no_trial_left();
  std::vector<int> selective_layers(ArmLayout base, std::optional<Step>& step);
  std::vector<int> layers_of_type(ArmLayout base, std::optional<Step>& step);
  std::optional<Step> try_diffuse(ArmLayout base);
  ArmSpec with_sides(ArmLayout base, const std::vector<int>& layers, std::optional<Step>& step);
  int64_t kld_contexts() const;
  Ask ask_to_localise(AskKind kind, const std::vector<std::string>& arms,
                      const std::string& reason) const;
  double kld_floor() const { return verdict_.aa_kld.value_or(0); }
  double trial_alpha() const;

  // states_end.cc: systems and verdicts.
  Step systems(const ArmSpec& candidate, const Comparison& decided);
  bool has_capacity(const ArmSpec& candidate, const CapacityRecord& record);
  Step untimed(const ArmSpec& candidate);
  std::optional<Step> judge_times(const ArmSpec& candidate, const TimingJudgement& times);
  Step without_gain(const ArmSpec& candidate, const CapacityRecord& record,
                    const std::optional<TimingJudgement>& times);
  Verdict accept(const ArmSpec& candidate, const Comparison& decided);
  Verdict reject(const std::string& sub_reason, const std::string& sentence);
  Verdict inconclusive(const std::string& sub_reason, const std::string& sentence,
                       double n_required = 0);
  Verdict too_few(const std::string& what, double n_required);
  void add_launch(const ArmSpec& candidate);
  std::string unlaunchable(const ArmSpec& candidate) const;
  std::optional<Step> try_without_windows(const ArmSpec& candidate);
  void finish(Verdict& verdict) const;

  // Shared.
  ArmSpec arm(ArmLayout layout) const;
  std::string text(ArmLayout layout) const { return arm(layout).text(); }
  bool is_usable(ArmLayout layout) const;
  std::optional<Reason> fault_of(const std::string& arm) const;
  std::optional<Ask> need_quality(const std::string& state, const std::string& block,
                                  const std::vector<std::string>& arms, const Look& look,
                                  const std::string& reason) const;
  bool is_finished(const std::string& block, const std::string& arm, int64_t look) const;
  std::vector<Look> looks(const std::string& block, double alpha) const;
  Comparison run_comparison(const std::string& block, const std::string& arm_text,
                            const std::string& reference, const Look& look);
  void explain(const Comparison& comparison);
  void trace_open(const std::string& state, const ArmTable& table);
  void trace(const std::string& state, const std::string& block, const std::string& arm_text,
             const std::string& event);
  int64_t longest_tokens() const;

  const DecideOptions& options_;
  const Evidence& evidence_;
  const Records& records_;
  ExampleIndex examples_;
  Verdict verdict_;  // grows on the way

  std::vector<ArmLayout> supported_;
  std::map<ArmLayout, const PreflightFact*> out_;  // layouts that a preflight fact rules out
  std::vector<std::string> buckets_;               // still in
  std::vector<std::string> weak_;                  // of the last failing arm
  RangeFindings findings_;
  double longest_ = 0;  // tokens of the longest bucket, mean of its prompts

  bool is_tested_ = false;        // whether calibration represents what is evaluated
  bool has_token_drift_ = false;  // more than calibration allows
  bool is_localising_ = false;    // E2 has been judged

  // How the trials of TRY ended.
  bool some_open_ = false, some_suggested_ = false, some_without_gain_ = false;
  bool some_failed_ = false, some_faulted_ = false, some_unlaunchable_ = false;
  bool has_tried_windows_ = false;
  double open_n_ = 0;
};

}  // namespace kv
