#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/calibration.h"
#include "checkpoint/checkpoint.h"
#include "cli/args.h"
#include "cli/console.h"
#include "engine/engine.h"
#include "evaluate/example.h"
#include "evaluate/record.h"
#include "model/model.h"
#include "report/facts.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kv::cli {

/// "tiny" becomes the built-in model's folder; anything else stays.
std::filesystem::path model_path(const std::string& name);

/// A model opened for a command, with what turns text into its tokens.
class Session {
 public:
  explicit Session(const RunArgs& args);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  /// The user's prompts, or kvscale's own text as one prompt. Throws FormatError naming file and
  /// prompt when one, and `new_tokens` more where it has an answer, leaves the model's context.
  std::vector<Prompt> prompts(int64_t new_tokens = 0) const;

  /// Packs the weights (once), with progress.
  std::shared_ptr<const Model> model(Progress& progress);

  /// The folder of this run: --out, or "kvscale-COMMAND-HASH" where the hash is over
  /// `configuration`, the model's and the prompts' contents. Creates it; writes configuration.txt,
  /// or refuses a folder that holds another run.
  std::filesystem::path run_folder(const std::string& command, const std::string& configuration,
                                   const std::vector<Prompt>& prompts) const;

  CalibrationSource calibration_source() const;
  ModelFacts model_facts() const;
  PromptFacts prompt_facts(const std::vector<Prompt>& prompts) const;

 private:
  RunArgs args_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::string chat_template_refusal_;
  std::shared_ptr<const Model> model_;
};

/// What ran, in this process and in earlier ones of the same run, for a report.
RunFacts run_facts(const std::vector<FactsRecord>& facts, const std::string& command);

}  // namespace kv::cli
