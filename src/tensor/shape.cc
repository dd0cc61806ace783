#include "tensor/shape.h"

#include <fmt/core.h>

#include "kvscale/error.h"

namespace kv {
namespace {

void bind_or_check(std::string_view op, std::string_view tensor_name, int64_t found, Dim& dim) {
  if (dim.size < 0) {
    dim.size = found;
    dim.source = tensor_name;
  } else if (dim.size != found) {
    throw ShapeError(fmt::format("{}: {}: expected {} = {} (from {}), found {}", op, tensor_name,
                                 dim.name, dim.size, dim.source, found));
  }
}

}  // namespace

void expect(std::string_view op, std::string_view tensor_name, const TensorView& tensor,
            std::initializer_list<Dim*> dims) {
  if (tensor.rank != static_cast<int>(dims.size())) {
    throw ShapeError(fmt::format("{}: {}: expected {} dimensions, found {}", op, tensor_name,
                                 dims.size(), shape_text(tensor)));
  }
  int i = 0;
  for (Dim* dim : dims) bind_or_check(op, tensor_name, tensor.sizes[i++], *dim);
  const int last = tensor.rank - 1;
  if (last >= 0 && tensor.sizes[last] > 1 && tensor.strides[last] != 1) {
    throw ShapeError(fmt::format("{}: {}: expected a contiguous last dimension, found stride {}",
                                 op, tensor_name, tensor.strides[last]));
  }
}

void expect(std::string_view op, std::string_view tensor_name, const TensorView& tensor,
            DType dtype, std::initializer_list<Dim*> dims) {
  if (tensor.dtype != dtype) {
    throw ShapeError(fmt::format("{}: {}: expected dtype {}, found {}", op, tensor_name,
                                 name(dtype), name(tensor.dtype)));
  }
  expect(op, tensor_name, tensor, dims);
}

}  // namespace kv
