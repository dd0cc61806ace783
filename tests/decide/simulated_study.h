#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "decide/decide.h"
#include "engine/arm.h"

namespace kv::test {

/// How often a candidate loses a question that the control answers, and answers one that the
/// control does not.
struct Rates {
  double loss = 0, gain = 0;
};

/// A model as decide would see it: what every arm costs, by truth, not by a run.
struct World {
  int64_t num_layers = 6, num_kv_heads = 2, head_dim = 64;
  std::vector<int64_t> windows;  // of the layers; empty = none has one
  std::vector<std::string> buckets = {"512", "1024", "2048"};
  int64_t documents = 0, questions = 0;  // 0: as the ask says
  double control = 0.9;                  // share that the control answers
  double chance = 0;
  double same_draw = 0.1;  // share of questions that share their document's luck
  Rates repeat;            // of the control's second run
  uint64_t seed = 1;
  bool fractions = false;  // scores of 0, 0.5 and 1 instead of 0 and 1

  std::function<Rates(const ArmSpec&, const std::string& bucket)> rates = [](const ArmSpec&,
                                                                             const std::string&) {
    return Rates{0.002, 0.002};
  };
  std::function<void(const ArmSpec&, RangeRecord&)> ranges = [](const ArmSpec&, RangeRecord&) {};
  std::function<double(const ArmSpec&)> kld = [](const ArmSpec&) { return 0.01; };
  std::function<bool(const std::string& layout)> supported = [](const std::string&) {
    return true;
  };
  std::function<bool(const ArmSpec&)> is_faulty = [](const ArmSpec&) { return false; };
  std::function<void(CapacityRecord&)> capacity = [](CapacityRecord&) {};
  int64_t calibrated_tokens = 1 << 20;
};

/// Answers asks by writing the records that a run of the world would have written.
class SimulatedStudy {
 public:
  explicit SimulatedStudy(World world) : world_(std::move(world)) {}

  /// Asks until there is a verdict. Fails the test after 40 asks, or when an ask repeats.
  Verdict run(const DecideOptions& options);

  /// Writes what one ask wants.
  void answer(const Ask& ask);

  /// With the sizes of the last run's plan.
  Evidence evidence() const;
  Records& records() { return records_; }
  const std::vector<Ask>& asks() const { return asks_; }

 private:
  void add_examples(const Ask& ask, const std::string& arm);
  void add_ranges(const std::string& arm);
  void add_capacity(const std::string& arm);
  double score(const std::string& arm, const std::string& block, const std::string& bucket,
               int64_t document, int64_t question) const;
  double draw(const std::string& what, const std::string& block, const std::string& bucket,
              int64_t document, int64_t question) const;

  int64_t documents_of(int64_t planned) const {
    return world_.documents > 0 ? world_.documents : planned;
  }
  std::vector<BlockSize> sizes() const;

  World world_;
  DecideOptions options_ = DecideOptions::quick();
  Records records_;
  std::vector<Ask> asks_;
};

}  // namespace kv::test
