#include "stats/check.h"

#include <fmt/core.h>

#include <cmath>

#include "kvscale/error.h"

namespace kv {

void require(bool ok, const char* function, const char* argument, double value,
             const char* expected) {
  if (ok) return;
  throw ValueError(
      fmt::format("{}: {}: expected {}, found {}", function, argument, expected, value));
}

void require_open_unit(const char* function, const char* argument, double value) {
  require(value > 0 && value < 1, function, argument, value, "more than 0 and less than 1");
}

void require_probability(const char* function, const char* argument, double value) {
  require(value >= 0 && value <= 1, function, argument, value, "0 to 1");
}

void require_same_size(const char* function, const char* argument, size_t found,
                       const char* reference, size_t expected) {
  if (found == expected) return;
  throw ValueError(fmt::format("{}: {}: expected {} values, as many as {}, found {}", function,
                               argument, expected, reference, found));
}

void require_finite(const char* function, const char* argument, std::span<const double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    throw ValueError(fmt::format("{}: {}[{}]: expected a finite number, found {}", function,
                                 argument, i, values[i]));
  }
}

}  // namespace kv
