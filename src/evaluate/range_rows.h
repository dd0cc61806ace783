#pragma once

#include <cstdint>

/// The inner loops of range_health, vectorised for the machine (Highway), in F32.
namespace kv::range_rows {

/// Matrices that are multiplied with are kept in panels of this many columns, each panel row by
/// row: element (i, column) lies at (column / 32) * panel_stride + i * 32 + column % 32. So a
/// product reads memory in order; rows of a whole matrix would put every step on another page. 32
/// floats are two vectors of the widest target.
inline constexpr int64_t kPanel = 32;
constexpr int64_t padded(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

/// c = a b: a [rows, inner] and c [rows, columns] row-major with these leading dimensions, b
/// [inner, columns] in panels. `columns` is a multiple of kPanel. Each sum runs over `inner` in
/// order, so a result depends on its row and column alone.
void multiply(const float* a, int64_t lda, const float* b, int64_t panel_stride, float* c,
              int64_t ldc, int64_t rows, int64_t inner, int64_t columns);

/// Turns n scores into their softmax, and sets the rest of the row, up to `width`, to 0.
void softmax(float* row, int64_t n, int64_t width);

/// sum p (e - sum p e)^2 over n entries: the spread of e that the softmax does not ignore.
double weighted_variance(const float* p, const float* e, int64_t n);

/// out[i] = a[i] + b[i] over n entries.
void add(const float* a, const float* b, float* out, int64_t n);

}  // namespace kv::range_rows
