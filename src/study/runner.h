#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/sampling.h"
#include "evaluate/example.h"
#include "study/logit_pass.h"

namespace kv {

/// How answers are decoded. When they are sampled, each question is answered `samples` times with
/// random numbers that hang on seed, document, question and sample, and so are the same for every
/// arm.
struct AnswerSampling {
  Sampling how;
  int64_t samples = 1;
  uint64_t seed = 0;
};

/// One try at a question.
struct Attempt {
  std::vector<int32_t> produced;  // choice per answer token; for text checks the whole generation
  std::vector<double> margins;    // of every choice, the stop id's too
  int32_t stop_id = -1;           // that ended it; -1: none
  bool finite = true;             // no NaN or infinity among its logits
  bool ended = true;              // by its stop rule; false when the generation ran to its limit
};

/// What a model answered to one question under one arm.
struct Answer {
  std::vector<Attempt> attempts;  // as many as there are samples; one when decoding is greedy
  double logprob = 0;             // mean nats per answer token, teacher-forced; 0 for text checks
  int64_t prompt_tokens = 0;      // attended to when the first answer token was predicted
  std::string kernel;             // what ran

  bool finite() const { return std::ranges::all_of(attempts, &Attempt::finite); }
};

/// An arm as a study names it; `repeat` runs it under another batch plan (the A/A arm).
struct RunnerArm {
  std::string name;
  ArmToRun arm;
  bool repeat = false;
};

/// Answers a document's questions under several arms: implemented by kvscale's own engine, and by
/// served engines.
class Runner {
 public:
  virtual ~Runner() = default;

  /// [arm][question]. All arms get the same tokens; a result does not depend on which other arms
  /// are asked.
  virtual std::vector<std::vector<Answer>> answer(const Document& document,
                                                  std::span<const RunnerArm> arms) = 0;
};

/// kvscale's own engine. A document's context is prefilled once per arm and shared by its
/// questions. Questions whose check works on tokens are teacher-forced in one pass: the choice at
/// each answer position, greedy or drawn, is, up to the first miss, what free generation gives.
class EngineRunner : public Runner {
 public:
  /// `stop_ids` end a free generation, and `line_end_ids` one that ends with its line;
  /// `max_new_tokens` bounds it where the question says nothing.
  EngineRunner(std::shared_ptr<const Model> model, BatchPlan plan, std::vector<int32_t> stop_ids,
               std::vector<int32_t> line_end_ids, int64_t max_new_tokens,
               const AnswerSampling& sampling = {});
  ~EngineRunner() override;

  std::vector<std::vector<Answer>> answer(const Document& document,
                                          std::span<const RunnerArm> arms) override;

  /// Shows `observer` what the control's cache stores of the contexts that answer() prefills, its
  /// repeat's not; null for nobody. Changes no answer.
  void observe_control(AttentionObserver* observer) { control_observer_ = observer; }

  /// What the arms really were so far.
  std::vector<ArmFacts> facts() const;

 private:
  struct Lane;
  Lane& lane_for(bool repeat, int64_t tokens, int64_t sequences);
  void add_facts(const Lane& lane);

  std::shared_ptr<const Model> model_;
  BatchPlan plan_;
  std::vector<int32_t> stop_ids_, line_end_ids_;  // the second with the first among them
  int64_t max_new_tokens_;
  AnswerSampling sampling_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  AttentionObserver* control_observer_ = nullptr;
  std::vector<ArmFacts> past_facts_;  // of lanes that were replaced by larger ones
};

}  // namespace kv
