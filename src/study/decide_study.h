#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decide/decide.h"
#include "evaluate/generators.h"
#include "evaluate/record_log.h"
#include "study/runner.h"
#include "study/scan.h"
#include "text/tokenizer.h"

namespace kv {

/// What a decision is asked about, beside the rules of DecideOptions.
struct StudyOptions {
  DecideOptions decide;
  std::vector<int64_t> buckets;  // prompt lengths in tokens, ascending
  std::vector<std::string>
      tasks;  // of the generators; empty: those that a pilot of the control allows
  Form form = Form::kPlain;
  uint64_t seed = 20260;
  int64_t max_new_tokens = 64;  // of answers that are generated freely
  BatchPlan plan;
};

/// Lengths to test when nobody says: powers of two from 256 on that the prompts reach and the
/// model's context holds; with kvscale's own text 512, 1024 and 2048.
std::vector<int64_t> default_buckets(std::span<const Prompt> prompts, bool own_text,
                                     const ModelSpec& model);

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

  Verdict run();

  /// What the reader of the verdict should know of how it was run: tasks that the pilot left out.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  void answer_ask(const Ask& ask);
  void record_support(const Ask& ask);
  void record_capacity(const Ask& ask);
  void record_calibration();
  void record_quality(const Ask& ask);
  void record_ranges(const Ask& ask);
  void record_kld(const Ask& ask);

  void deal_prompts();
  void deal(std::vector<const Prompt*> prompts, const std::vector<std::string>& blocks);
  void choose_tasks();
  std::optional<double> pilot_score(const std::string& task);
  const std::vector<Document>& documents(const std::string& block);
  std::vector<Document> generate_block(const std::string& block, int64_t documents,
                                       int64_t questions) const;
  std::vector<Document> user_documents(const std::string& block) const;
  std::vector<Prompt> contexts(const std::string& block, int64_t per_bucket);
  /// Those of `arms` that have to answer the document's questions on this block. Answers of the
  /// control on E1 that AA has already are taken over.
  std::vector<RunnerArm> arms_without_answers(const Document& document, const std::string& block,
                                              std::span<const RunnerArm> arms);
  void score_document(const Document& document, const std::string& block,
                      std::span<const RunnerArm> arms);
  ExampleRecord judge(const Document& document, const Question& question, const Answer& answer,
                      const std::string& block, const std::string& arm) const;
  RunnerArm runner_arm(const std::string& name);
  const Calibration& calibration();
  std::vector<BlockSize> block_sizes();

  std::shared_ptr<const Model> model_;
  Tokenizer tokenizer_;
  std::vector<Prompt> prompts_;
  CalibrationSource source_;
  StudyOptions options_;
  std::filesystem::path folder_;
  RecordLog& log_;
  Progress& progress_;
  EngineRunner runner_;
  std::vector<std::string> tasks_;
  std::map<std::string, std::string> block_of_cluster_;     // of the user's prompts
  std::map<std::string, std::vector<Document>> documents_;  // by block
  std::optional<Calibration> calibration_;
  std::vector<std::string> notices_;
};

}  // namespace kv
