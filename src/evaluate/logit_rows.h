#pragma once

#include <cstdint>

/// The passes over a row of logits that logit_metrics is made of, vectorised for the machine
/// (Highway). Sums are FP64.
namespace kv::logit_rows {

struct Largest {
  float value = 0;     // -infinity for n = 0
  bool finite = true;  // no NaN or infinity in the row; otherwise value means nothing
};
Largest largest(const float* logits, int64_t n);

/// The first index with logits[i] == value, n if there is none.
int64_t first_index(const float* logits, int64_t n, float value);

struct Weights {
  double sum = 0, sum_squares = 0;
};
/// weights[i] = exp(logits[i] - shift).
Weights exponentials(const float* logits, int64_t n, float shift, double* weights);

struct Contrast {
  double sum = 0;         // of exp(candidate[i] - shift)
  double difference = 0;  // of weights[i] * (control[i] - candidate[i])
  double product = 0;     // of weights[i] * exp(candidate[i] - shift)
};
/// The candidate's row against the control's weights.
Contrast contrast(const double* weights, const float* control, const float* candidate, int64_t n,
                  float shift);

}  // namespace kv::logit_rows
