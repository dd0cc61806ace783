#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "decide/evidence.h"
#include "decide/options.h"
#include "decide/verdict.h"
#include "report/facts.h"

namespace kv {

/// What a run adds to a verdict once it is made: remarks on how it was run, and what became of the
/// directory for the engine.
struct VerdictEnding {
  std::vector<std::string> notices;                          // behind the verdict's own
  std::vector<NextCommand> next;                             // likewise
  std::optional<std::map<std::string, LaunchLines>> launch;  // instead of the verdict's own
  int exit_code = 0;                                         // instead of the verdict's own
};

/// The difference between a verdict and what a run made of it, and that difference applied.
VerdictEnding ending_between(const Verdict& own, const Verdict& ended);
void apply(const VerdictEnding& ending, Verdict& verdict);

/// What the verdict of a decide run rests on beside its records, and what its page says of the run:
/// with records.jsonl it gives decision.json and report.html again, to the byte. A run writes it as
/// run.json when it has its verdict.
struct DecideRun {
  DecideOptions options;
  std::vector<LayerGeometry> layers;
  std::vector<PreflightFact> facts;
  std::vector<BlockSize> sizes;
  VerdictEnding ending;
  ModelFacts model;
  PromptFacts prompts;
  RunFacts run;
  // How many example records each block has, the pilot's too, which no verdict reads. A file from
  // before they were counted has none.
  std::map<std::string, int64_t> examples;
};

/// Example records by block.
std::map<std::string, int64_t> count_examples(const Records& records);

inline constexpr int64_t kDecideRunSchema = 1;

/// One JSON object, indented by two spaces, ending in a newline; the same run gives the same bytes.
std::string decide_run_json(const DecideRun& run);

/// Throws IoError, and FormatError naming file, field, expected and found.
DecideRun read_decide_run(const std::filesystem::path& path);

/// The verdict that the records give. Throws FormatError when a block has other than the counted
/// examples, or when the records end before a verdict (then says what would be measured next), and
/// what next_step throws.
Verdict recompute(const DecideRun& run, const Records& records);

}  // namespace kv
