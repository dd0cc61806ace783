#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "decide/decide.h"
#include "evaluate/generators.h"
#include "evaluate/record_log.h"
#include "evaluate/scorers.h"
#include "study/blocks.h"
#include "study/runner.h"
#include "study/scan.h"
#include "study/served_arms.h"
#include "text/tokenizer.h"

namespace kv {

/// Runs what decide() asks for until it has a verdict. Everything goes through the log, one record
/// at a time, so the same study resumes after any crash.
class DecideStudy {
 public:
  /// `folder` gets the calibrated scales. Prompts with answers give the tasks; prompts without give
  /// calibration, ranges and logits, and the generators' tasks give the scores.
  DecideStudy(std::shared_ptr<const Model> model, const Tokenizer& tokenizer,
              std::span<const Prompt> prompts, CalibrationSource source, StudyOptions options,
              std::filesystem::path folder, RecordLog& log, Progress& progress);
  ~DecideStudy();

  /// Lets servers answer what is scored, `concurrency` documents at a time; to be said before
  /// run(). What needs the cache's content (calibration, ranges, KLD of trials) stays with
  /// kvscale's own engine. `arms` must outlive the study.
  void serve(ServedArms& arms, int concurrency);

  Verdict run();

  /// What the reader of the verdict should know of how it was run: tasks that the pilot left out.
  const std::vector<std::string>& notices() const { return notices_; }

  /// What the verdict rested on beside the records: see Evidence. After run().
  const std::vector<PreflightFact>& facts() const { return facts_; }
  std::vector<BlockSize> sizes() { return blocks_.sizes(); }
  /// The documents that were made, by block.
  const std::map<std::string, std::vector<Document>>& documents() const { return blocks_.made(); }

 private:
  static std::string example_record_id(const std::string& block, const std::string& arm,
                                       const std::string& example);
  void answer_ask(const Ask& ask);
  void record_support(const Ask& ask);
  void record_capacity(const Ask& ask);
  void record_calibration();
  void record_quality(const Ask& ask);
  void record_ranges(const Ask& ask);
  void record_kld(const Ask& ask);

  PreflightFact provenance_fact() const;
  PreflightFact control_fact();
  void make_recorded_blocks();
  PreflightFact disjoint_fact(const std::string& block);
  void choose_tasks();
  std::optional<double> pilot_score(const std::string& task);
  /// Those of `arms` that have to answer the document's questions on this block. Answers of the
  /// control on E1 that AA has already are taken over.
  std::vector<RunnerArm> arms_without_answers(const Document& document, const std::string& block,
                                              std::span<const RunnerArm> arms);
  /// What the control's cache stored of the document's context, unless the log has it.
  void record_amax(const Document& document, const std::string& block,
                   const AmaxObserver& observer);
  void score_document(const Document& document, const std::string& block,
                      std::span<const RunnerArm> arms);
  /// By how much the answers to `count` are off.
  void record_count_errors(const Document& document, const std::string& block,
                           std::span<const RunnerArm> arms,
                           const std::vector<std::vector<Answer>>& answers);
  ExampleRecord judge(const Document& document, const Question& question, const Answer& answer,
                      const std::string& block, const std::string& arm) const;
  Score score_of(const Question& question, const Attempt& attempt) const;
  RunnerArm runner_arm(const std::string& name, bool with_scales = true);
  const Calibration& calibration();

  // served_study.cc
  struct Served;
  bool is_worth_asking() const;
  void served_preflight();
  bool probe_arms(const std::vector<std::string>& arms);
  void probe(const ArmSpec& arm);
  void add_prefill(const ArmSpec& arm, ServedArm& server, ServedRecord& record);
  void check_probe(const ArmSpec& arm, const ServerFacts& server, const ServedRecord& record);
  PreflightFact served_control_fact(ServedArm& server, const ServedRecord& record);
  void score_served(const std::vector<const Document*>& documents, const std::string& block,
                    std::span<const RunnerArm> arms, const std::string& stage);

  std::shared_ptr<const Model> model_;
  Tokenizer tokenizer_;
  CalibrationSource source_;
  StudyOptions options_;
  std::filesystem::path folder_;
  RecordLog& log_;
  Progress& progress_;
  EngineRunner runner_;
  StudyBlocks blocks_;
  std::optional<Calibration> calibration_;
  std::vector<std::string> notices_;
  std::vector<PreflightFact> facts_;
  std::set<std::string> checked_blocks_;  // against all that were made before them
  std::shared_ptr<Served> served_;        // null: kvscale's own engine answers
};

}  // namespace kv
