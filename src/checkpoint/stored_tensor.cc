#include "checkpoint/stored_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kvscale/error.h"
#include "numeric/bulk.h"

namespace kv {
namespace {

int64_t row_bytes(const StoredTensor& tensor) {
  return tensor.row_values() / tensor.encoding->block_values * tensor.encoding->block_bytes;
}

// Where row `row` of the half-split order is stored.
int64_t stored_row(const StoredTensor& tensor, int64_t row) {
  const int64_t head_dim = tensor.interleaved_head_dim;
  const int64_t within = row % head_dim;
  const int64_t pair = within % (head_dim / 2);
  const int64_t half = within / (head_dim / 2);
  return row - within + 2 * pair + half;
}

void decode(const StoredTensor& tensor, const uint8_t* bytes, int64_t values, float* out) {
  tensor.encoding->decode(bytes, values / tensor.encoding->block_values, out);
}

void decode(const StoredTensor& tensor, const uint8_t* bytes, int64_t values, uint16_t* out) {
  if (tensor.encoding->is_bf16()) {
    std::memcpy(out, bytes, static_cast<size_t>(values) * sizeof(uint16_t));
    return;
  }
  std::array<float, 2048> buffer;  // whole blocks of every encoding, and small enough for the L1
  const Encoding& encoding = *tensor.encoding;
  for (int64_t done = 0; done < values;) {
    const int64_t n = std::min<int64_t>(values - done, buffer.size());
    encoding.decode(bytes, n / encoding.block_values, buffer.data());
    bf16_encode(buffer.data(), out + done, static_cast<size_t>(n));
    bytes += n / encoding.block_values * encoding.block_bytes;
    done += n;
  }
}

template <class T>
void read_rows_as(const StoredTensor& tensor, int64_t first_row, int64_t num_rows, T* out) {
  const uint8_t* bytes = tensor.bytes.data();
  if (tensor.interleaved_head_dim == 0) {
    decode(tensor, bytes + first_row * row_bytes(tensor), num_rows * tensor.row_values(), out);
    return;
  }
  for (int64_t row = first_row; row < first_row + num_rows; ++row, out += tensor.row_values()) {
    decode(tensor, bytes + stored_row(tensor, row) * row_bytes(tensor), tensor.row_values(), out);
  }
}

}  // namespace

int64_t StoredTensor::row_values() const {
  int64_t values = 1;
  for (size_t i = 1; i < shape.size(); ++i) values *= shape[i];
  return values;
}

int64_t checked_elements(const std::vector<int64_t>& shape, const std::string& where) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0) throw FormatError(fmt::format("{}: a size of {}", where, size));
    if (size == 0) return 0;
  }
  for (const int64_t size : shape) {
    if (elements > std::numeric_limits<int64_t>::max() / size) {
      throw FormatError(fmt::format("{}: shape {} has more elements than 63 bits can count", where,
                                    shape_text(shape)));
    }
    elements *= size;
  }
  return elements;
}

void read_rows(const StoredTensor& tensor, int64_t first_row, int64_t num_rows, float* out) {
  read_rows_as(tensor, first_row, num_rows, out);
}

void read_rows(const StoredTensor& tensor, int64_t first_row, int64_t num_rows,
               uint16_t* bf16_out) {
  read_rows_as(tensor, first_row, num_rows, bf16_out);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace kv
