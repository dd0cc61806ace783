#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/view.h"

namespace kv {

/// A named size, bound by the first tensor that has it; every later tensor must agree.
///
///   Dim tokens{"num_tokens"}, heads{"num_kv_heads"}, dim{"head_dim"};
///   expect("store_kv", "k", k, {&tokens, &heads, &dim});
///   expect("store_kv", "v", v, {&tokens, &heads, &dim});
struct Dim {
  explicit Dim(std::string dim_name, int64_t fixed = -1) : name(std::move(dim_name)), size(fixed) {
    if (fixed >= 0) source = "the request";
  }
  std::string name;
  int64_t size;        // -1 until bound
  std::string source;  // the tensor that bound it, for the message
};

/// Throws ShapeError unless `tensor` has the dtype (when one is given), the rank of `dims`, the
/// sizes already bound, and a contiguous last dimension. Binds the rest.
void expect(std::string_view op, std::string_view tensor_name, const TensorView& tensor,
            std::initializer_list<Dim*> dims);
void expect(std::string_view op, std::string_view tensor_name, const TensorView& tensor,
            DType dtype, std::initializer_list<Dim*> dims);

}  // namespace kv
