#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/encoding.h"

namespace kv {

class MappedFile;

/// A tensor where it lies in a mapped file.
struct StoredTensor {
  std::string name;  // in the file
  std::vector<int64_t> shape;
  const Encoding* encoding = nullptr;
  std::span<const uint8_t> bytes;
  const MappedFile* file = nullptr;

  /// Not 0: within each head of so many rows, stored row 2i + h is row h * (head_dim / 2) + i
  /// (GGUF, Q and K of architecture llama).
  int interleaved_head_dim = 0;

  int64_t num_rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t row_values() const;
};

/// Elements of a shape. Throws FormatError naming `where` when a size is negative or the product
/// overflows 63 bits.
int64_t checked_elements(const std::vector<int64_t>& shape, const std::string& where);

/// Rows [first_row, first_row + num_rows), row-major; the tensor is readable and the rows exist.
void read_rows(const StoredTensor& tensor, int64_t first_row, int64_t num_rows, float* out);
void read_rows(const StoredTensor& tensor, int64_t first_row, int64_t num_rows, uint16_t* bf16_out);

/// "[64, 128]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace kv
