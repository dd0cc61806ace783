#pragma once

#include <cstdint>

/// The inner loops of range_health, vectorised for the machine (Highway), in F32.
namespace kv::range_rows {

/// Leading dimensions are rounded up to this many floats, so that two whole vectors can always be
/// loaded and stored: 2 * 16 lanes is the most a target has.
inline constexpr int64_t kPadding = 32;
constexpr int64_t padded(int64_t n) { return (n + kPadding - 1) / kPadding * kPadding; }

/// c = a b: a [rows, inner], b [inner, columns], c [rows, columns], row-major with these leading
/// dimensions. `columns` is a multiple of kPadding. Each sum runs over `inner` in order, so a
/// result depends on its row and column alone.
void multiply(const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc,
              int64_t rows, int64_t inner, int64_t columns);

/// Turns n scores into their softmax, and sets the rest of the row, up to `width`, to 0.
void softmax(float* row, int64_t n, int64_t width);

/// sum p (e - sum p e)^2 over n entries: the spread of e that the softmax does not ignore.
double weighted_variance(const float* p, const float* e, int64_t n);

/// out[i] = a[i] + b[i] over n entries.
void add(const float* a, const float* b, float* out, int64_t n);

}  // namespace kv::range_rows
