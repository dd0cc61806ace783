#include <gtest/gtest.h>

#include <random>

#include "cuda/sm90/divisor.h"

namespace kv::cuda {
namespace {

// What the store kernels take tokens, heads and slots apart with.
TEST(Divisor, DividesAsTheDivisionDoes) {
  std::mt19937 rng(11);
  for (uint32_t d = 1; d <= 4096; ++d) {
    const Divisor divisor(d);
    for (const uint32_t n : {0u, 1u, d - 1, d, d + 1, 7 * d - 1, 7 * d, 0x7fffffffu}) {
      ASSERT_EQ(divisor.quotient(n), n / d) << n << " / " << d;
    }
    for (int i = 0; i < 64; ++i) {
      const auto n = static_cast<uint32_t>(rng() >> 1);
      const uint32_t multiple = n / d * d;
      ASSERT_EQ(divisor.quotient(n), n / d) << n << " / " << d;
      ASSERT_EQ(divisor.quotient(multiple), n / d) << multiple << " / " << d;
      if (multiple > 0) {
        ASSERT_EQ(divisor.quotient(multiple - 1), n / d - 1) << multiple << " / " << d;
      }
    }
  }
}

}  // namespace
}  // namespace kv::cuda
