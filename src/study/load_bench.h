#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "endpoint/load_summary.h"
#include "endpoint/server_load.h"
#include "evaluate/record_log.h"
#include "study/progress.h"
#include "study/served_arms.h"

namespace kv {

/// Requests of one kind: tokens of the prompt, tokens that are generated.
struct LoadShape {
  std::string label;  // "512"; what timing records call the bucket
  int64_t input = 0, output = 0;
};

/// Reads "512x64": the label is the prompt's length. Throws ValueError.
LoadShape parse_load_shape(const std::string& text);

struct LoadBenchOptions {
  std::vector<LoadShape> shapes;
  bool is_mixed = false;  // one more kind, "mixed": all shapes in turn
  double rate = 0;        // requests per second; 0: closed loop
  int64_t concurrency = 4;
  int64_t requests = 16;  // of a run
  int64_t runs = 5;
  int64_t warmups = 2;  // of each shape on a server that was just opened; not counted
  Goodput goodput;
  uint64_t seed = 20260;
  int64_t capacity_limit = 0;  // sequences at a time, at most, that are tried; 0: not asked
};

/// One run of one kind under one arm.
struct LoadRun {
  std::string arm, label;
  int64_t run = 0;
  LoadSummary summary;
  ServerLoad peaks;
};

/// How many sequences a server holds at once, by trying: all of them running, none thrown out.
struct LoadCapacity {
  std::string arm;
  int64_t sequences = 0, tokens = 0;  // tokens: those sequences', at their end
  int64_t refused_sequences = 0;      // the fewest that were too many; 0: the limit was reached
  double preemptions = 0;             // of that try
};

/// Times the arms' servers under load, interleaved (control, candidates, the control once more, and
/// back), with the same prompts in the same order for every arm, none of them used twice. Runs that
/// the log has are not measured again. What is measured goes to the log as timing records and, with
/// all times, to `folder`/load/.
class LoadBench {
 public:
  /// Prompts are drawn from `tokens`, ordinary ones of the model. Throws ValueError for options
  /// that give no run.
  LoadBench(ServedArms& arms, std::vector<int32_t> tokens, LoadBenchOptions options,
            std::filesystem::path folder, RecordLog& log, Progress& progress);

  void run();

  /// What this process measured; those of earlier ones are in the log.
  const std::vector<LoadRun>& runs() const { return runs_; }
  const std::vector<LoadCapacity>& capacities() const { return capacities_; }
  /// Control first, its repeat last.
  std::vector<std::string> arms() const;
  /// Labels of all kinds.
  std::vector<std::string> labels() const;

 private:
  struct Turn {
    std::string arm;
    int64_t run = 0;
  };
  std::vector<Turn> turns() const;
  std::vector<LoadRequest> requests(const std::string& arm, const std::string& label, int64_t run,
                                    int64_t count) const;
  void measure(const Turn& turn, const std::string& label);
  void warm_up(CompletionClient& client, const std::string& arm, const std::string& label);
  void measure_capacity(const std::string& arm);
  bool fits(CompletionClient& client, const LoadShape& shape, int64_t sequences, double& thrown);
  LoadResult send(CompletionClient& client, const std::vector<LoadRequest>& requests,
                  const LoadPlan& plan);

  ServedArms& arms_;
  std::vector<int32_t> tokens_;
  LoadBenchOptions options_;
  std::filesystem::path folder_;
  RecordLog& log_;
  Progress& progress_;
  std::vector<LoadRun> runs_;
  std::vector<LoadCapacity> capacities_;
  std::weak_ptr<ServedArm> warm_server_;
  std::map<std::string, bool> warm_;  // key and label; of `warm_server_` when arms take turns
  uint64_t capacity_tries_ = 0;
};

}  // namespace kv
