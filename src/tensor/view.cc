#include "tensor/view.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <span>

#include "kvscale/error.h"

namespace kv {

TensorView TensorView::contiguous(const void* data, DType dtype,
                                  std::initializer_list<int64_t> sizes) {
  TensorView view;
  if (sizes.size() > view.sizes.size()) throw ShapeError("tensor view: more than 4 dimensions");
  view.data = const_cast<void*>(data);  // views of inputs are const by their position, not by type
  view.dtype = dtype;
  for (const int64_t size : sizes) view.sizes[view.rank++] = size;
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.sizes[i];
  }
  return view;
}

int64_t TensorView::num_elements() const {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= sizes[i];
  return count;
}

bool TensorView::is_contiguous() const {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (sizes[i] != 1 && strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return true;
}

std::string shape_text(const TensorView& view) {
  return fmt::format("[{}]",
                     fmt::join(std::span(view.sizes.data(), static_cast<size_t>(view.rank)), ", "));
}

}  // namespace kv
