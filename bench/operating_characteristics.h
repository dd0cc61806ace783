#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decide/options.h"

namespace kv {

/// A truth to decide about: what an arm really loses and gains in each bucket, as shares of all
/// questions.
struct Truth {
  std::string name;
  std::vector<double> losses, gains;  // per bucket
};

/// How often a comparison under the planned looks ends in which way.
struct Characteristics {
  int64_t simulations = 0;
  int64_t keeps = 0;     // Q_PASS at some look
  int64_t shifts = 0;    // a material loss or a persistent shift at some look
  int64_t opens = 0;     // neither at the last look
  double questions = 0;  // per bucket when it ended, mean

  double keep_rate() const { return static_cast<double>(keeps) / static_cast<double>(simulations); }
  double shift_rate() const {
    return static_cast<double>(shifts) / static_cast<double>(simulations);
  }
  double open_rate() const { return static_cast<double>(opens) / static_cast<double>(simulations); }
};

/// Simulates binary answers of documents x questions (options.documents and
/// options.questions_per_document) in every bucket of the truth, and judges them as a study does,
/// look by look. `correlation` is that of two questions of one document: each takes its document's
/// luck with probability sqrt(correlation) and its own else. With `use_halves` a shift must show in
/// both replicate halves. The same seed gives the same result.
Characteristics simulate(const DecideOptions& options, const Truth& truth, double correlation,
                         bool use_halves, int64_t simulations, uint64_t seed);

/// The truths of the method's table 4.9, four buckets each.
std::vector<Truth> published_truths();

}  // namespace kv
