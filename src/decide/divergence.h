#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/record_log.h"
#include "stats/intervals.h"

namespace kv {

/// The share of generations that are still the control's after `index` tokens.
struct DivergencePoint {
  int64_t index = 0, at_risk = 0, diverged = 0;
  double survival = 1;
  Interval interval;  // 95 %, over documents
};

/// Where the generations of one arm leave the control's, in one bucket of one block. It describes
/// and decides nothing: two right answers may differ. A generation that does not diverge is
/// censored where it ends, or where it is no longer known.
struct DivergenceRow {
  std::string block, arm, bucket;
  bool is_sampled = false;
  int64_t n = 0, documents = 0;
  int64_t diverged = 0;
  int64_t near_ties = 0;  // divergences where the control's choice led by less than kNearTie
  double exact_match_rate = 1;
  double hazard = 0;              // divergences a generated token
  int64_t longest = 0;            // tokens that the longest comparison reached
  std::optional<int64_t> median;  // tokens after which half have diverged
  std::vector<DivergencePoint> curve;
  double agreeing = 1;          // the curve's end
  Interval agreeing_interval;   // 95 %, over documents
  double undamaged = 1;         // the same with near ties taken as censored
  Interval undamaged_interval;  // likewise
};

/// One row for every block, arm and bucket of records that were compared with the control: blocks
/// and arms in the order of the records, buckets ascending.
std::vector<DivergenceRow> divergence_rows(const Records& records);

/// Mean absolute error of the answers to `count` that are numbers, of one arm in one bucket of a
/// block. It describes and decides nothing: an answer is right or wrong.
struct CountErrorRow {
  std::string block, arm, bucket;
  int64_t n = 0;
  double mean = 0;
};

/// In the order in which they first appear in the records.
std::vector<CountErrorRow> count_error_rows(const Records& records);

}  // namespace kv
