#pragma once

#include <cstddef>
#include <span>

namespace kv {

/// Throws ValueError "<function>: <argument>: expected <expected>, found <value>" unless `ok`.
/// The statistics functions pass conditions that are false for NaN, so NaN never goes through.
void require(bool ok, const char* function, const char* argument, double value,
             const char* expected);

/// Throws ValueError unless 0 < value < 1.
void require_open_unit(const char* function, const char* argument, double value);

/// Throws ValueError unless 0 <= value <= 1.
void require_probability(const char* function, const char* argument, double value);

/// Throws ValueError unless the two sizes agree; names both arguments.
void require_same_size(const char* function, const char* argument, size_t found,
                       const char* reference, size_t expected);

/// Throws ValueError at the first value that is NaN or infinite; names its index.
void require_finite(const char* function, const char* argument, std::span<const double> values);

}  // namespace kv
