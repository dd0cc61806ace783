#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/dtype.h"

namespace kv {

/// Where a tensor's bytes are.
enum class Device : uint8_t { kCpu, kCuda };

/// Up to four dimensions over memory that somebody else owns. Strides are in elements.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device = Device::kCpu;
  int rank = 0;
  std::array<int64_t, 4> sizes{};
  std::array<int64_t, 4> strides{};

  /// A row-major view of `sizes`.
  static TensorView contiguous(const void* data, DType dtype, std::initializer_list<int64_t> sizes);

  int64_t num_elements() const;
  bool is_contiguous() const;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// "[3, 8, 64]"
std::string shape_text(const TensorView& view);

}  // namespace kv
