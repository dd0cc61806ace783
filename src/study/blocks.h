#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "decide/decide.h"
#include "evaluate/generators.h"
#include "study/calibration_pass.h"
#include "study/study_options.h"
#include "text/tokenizer.h"

namespace kv {

/// Whole answers count: shares of a span would make every comparison one of shares, where the test
/// for pairs of right and wrong is the sharper one. Tasks that have no whole answer keep theirs.
void judge_whole_answers(std::vector<Document>& documents);

/// The documents of a study's blocks: generated, or the user's prompts dealt out. A block is made
/// when it is first asked for; its tasks take turns, and every document knows its look and
/// replicate half.
class StudyBlocks {
 public:
  /// `prompts_name` is what messages call the prompts. Throws ValueError when a bucket has prompts
  /// with answers, but from too few documents for every block.
  StudyBlocks(const Tokenizer& tokenizer, std::span<const Prompt> prompts, std::string prompts_name,
              const StudyOptions& options);

  /// The tasks of generated documents; to be set before the first block is asked for.
  void set_tasks(std::vector<std::string> tasks) { tasks_ = std::move(tasks); }

  /// "AA", "E1", "E2", "E3" or "CAL". The A/A block is the first documents of E1.
  const std::vector<Document>& documents(const std::string& block);

  /// The blocks that were asked for so far, by name.
  const std::map<std::string, std::vector<Document>>& made() const { return documents_; }

  /// Contexts of a block without their questions, and the user's prompts of it that have no
  /// answers: for calibration, ranges and logits.
  std::vector<Prompt> contexts(const std::string& block, int64_t per_bucket);

  /// Contexts of block CAL, in the evaluation's proportions of lengths and tasks, and the user's
  /// prompts of it that have no answers, which no task asks about.
  std::vector<CalibrationExample> calibration_examples();

  /// What two blocks of the user's prompts and of the blocks that were made share; empty when they
  /// are disjoint. The A/A block is a part of E1 and does not count as another one.
  std::string shared() const;

  /// How much every look of every block has.
  std::vector<BlockSize> sizes();

  /// What the reader of the verdict should know of how prompts were dealt.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  void deal_prompts();
  void deal(std::vector<const Prompt*> prompts, const std::vector<std::string>& blocks);
  void expect_every_block(const std::string& bucket,
                          const std::vector<const Prompt*>& prompts) const;
  std::vector<Document> generate_block(const std::string& block, int64_t documents,
                                       int64_t questions) const;
  int64_t questions_in(int64_t documents) const;
  std::vector<Document> user_documents(const std::string& block) const;

  const Tokenizer& tokenizer_;
  std::vector<Prompt> prompts_;
  std::string prompts_name_;
  StudyOptions options_;
  std::vector<std::string> tasks_, notices_;
  std::map<std::string, std::string> block_of_cluster_;     // of the user's prompts
  std::map<std::string, std::vector<Document>> documents_;  // by block
};

}  // namespace kv
