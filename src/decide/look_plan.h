#pragma once

#include <cstdint>
#include <vector>

namespace kv {

/// One planned look at a block: the errors that all looks may make are spent over them, so that any
/// of them may decide. (Method 4.7)
struct Look {
  int64_t number = 1, of = 1;
  double alpha = 0.025;       // one-sided, of all looks together
  double bound = 1.96;        // critical value of the intervals at this look
  double shift_level = 0.05;  // for adjusted p-values of a shift at this look

  bool is_last() const { return number == of; }
};

/// The looks at information fractions `fractions` (rising, the last one 1) for a one-sided alpha of
/// acceptance and a family-wise alpha of a shift. Throws ValueError.
std::vector<Look> plan_looks(const std::vector<double>& fractions, double alpha_accept,
                             double alpha_shift);

/// How many of a bucket's `documents` a look has seen, number from 1.
int64_t documents_at(const std::vector<double>& fractions, int64_t number, int64_t documents);

/// The look that document `index` of `documents` comes in with, from 1.
int64_t look_of(const std::vector<double>& fractions, int64_t index, int64_t documents);

}  // namespace kv
