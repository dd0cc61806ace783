#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kv {

/// How attention is computed in the experiment, cheapest precision last.
enum class ErrorPath : uint8_t {
  kFp16Standard,          // scores and probabilities stored in F16
  kFp16Flash,             // softmax in F32, probabilities in F16 for the second product
  kFp8Tensor,             // Q, K, V in E4M3, one scale each; P in E4M3
  kFp8Blocks,             // as kFp8Tensor, one scale per 128 rows
  kFp8Hadamard,           // as kFp8Tensor after Q and K went through a random Hadamard rotation
  kFp8HadamardBlocks,     // both
  kStoredScaleOne,        // K and V in E4M3 with scale 1.0, the rest as kFp16Flash
  kStoredPerTensor,       // ... with amax / 448
  kStoredPerTokenVector,  // ... with amax / 448 of each row
};

std::span<const ErrorPath> error_paths();

/// "FP8, per tensor: Q, K, V and P", ...
std::string_view name(ErrorPath path);

/// Q, K and V of the experiment: N(0, 1), and one entry in a thousand with N(0, 100) added (the
/// second number is a variance), as FlashAttention-3's paper draws them.
struct ErrorExperiment {
  int64_t queries = 256, keys = 8448;
  int64_t head_dim = 128;  // a power of two
  int seeds = 16;          // with 8 the mean of a path still moves by a quarter
  uint64_t seed = 1;
  int threads = 1;
};

/// Root mean square error of a path's outputs against non-causal attention in double on unrounded
/// inputs.
struct ErrorRow {
  ErrorPath path;
  std::vector<double> rmse;  // [seeds]
  double mean() const;
  double least() const;
  double most() const;
};

/// All paths on the same inputs. The result does not depend on `threads`. Throws ValueError for
/// sizes that are not positive, keys that are no multiple of 128 and a head_dim that is no power of
/// two.
std::vector<ErrorRow> measure_fp8_error(const ErrorExperiment& experiment);

}  // namespace kv
