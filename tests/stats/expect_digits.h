#pragma once

#include <gtest/gtest.h>

#include <cmath>

namespace kv {

/// Half a unit of the tenth decimal, the last one most vectors state.
inline constexpr double kTenDigits = 0.5e-10 + 1e-15;

}  // namespace kv

#define EXPECT_TENTH(actual, expected) EXPECT_NEAR(actual, expected, kTenDigits)
#define EXPECT_RELATIVE(actual, expected) EXPECT_NEAR(actual, expected, 1e-9 * std::abs(expected))
