// The numeric-error table of FlashAttention-3's paper, small; `kvscale bench fp8-error` has it in
// full.

#include "evaluate/fp8_error.h"

#include <gtest/gtest.h>

#include <map>

#include "kvscale/error.h"

namespace kv {
namespace {

std::map<ErrorPath, double> means(const ErrorExperiment& experiment) {
  std::map<ErrorPath, double> out;
  for (const ErrorRow& row : measure_fp8_error(experiment)) out[row.path] = row.mean();
  return out;
}

ErrorExperiment small() {
  ErrorExperiment out;
  out.queries = 16;
  out.keys = 4096;
  out.seeds = 4;
  out.threads = 2;
  return out;
}

TEST(Fp8Error, PathsComeInTheKnownOrder) {
  const std::map<ErrorPath, double> mean = means(small());
  const auto at = [&](ErrorPath path) { return mean.at(path); };
  EXPECT_LT(at(ErrorPath::kFp16Flash), at(ErrorPath::kFp16Standard));
  EXPECT_LT(10 * at(ErrorPath::kFp16Standard), at(ErrorPath::kStoredPerTokenVector));
  EXPECT_LT(at(ErrorPath::kFp8Hadamard), at(ErrorPath::kFp8Tensor)) << "rotation helps";
  EXPECT_LT(at(ErrorPath::kFp8HadamardBlocks), at(ErrorPath::kFp8Blocks));
  EXPECT_LT(at(ErrorPath::kStoredPerTokenVector), at(ErrorPath::kStoredScaleOne));
  EXPECT_LT(at(ErrorPath::kStoredPerTokenVector), at(ErrorPath::kStoredPerTensor));
}

TEST(Fp8Error, ThreadsChangeNothingAndSeedsDo) {
  ErrorExperiment one = small();
  one.queries = 2;
  one.keys = 128;
  one.seeds = 3;
  ErrorExperiment three = one;
  one.threads = 1;
  three.threads = 3;
  const auto a = measure_fp8_error(one), b = measure_fp8_error(three);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].rmse, b[i].rmse) << name(a[i].path);
    EXPECT_NE(a[i].rmse[0], a[i].rmse[1]) << name(a[i].path);
  }
}

TEST(Fp8Error, RefusesSizesThatItCannotCutOrRotate) {
  ErrorExperiment keys, head_dim;
  keys.keys = 100;
  head_dim.head_dim = 96;
  EXPECT_THROW(measure_fp8_error(keys), ValueError);
  EXPECT_THROW(measure_fp8_error(head_dim), ValueError);
}

}  // namespace
}  // namespace kv
