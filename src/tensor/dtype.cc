#include "tensor/dtype.h"

#include "kvscale/error.h"

namespace kv {
namespace {

struct Info {
  size_t bytes;
  std::string_view name;
};

const Info& info(DType dtype) {
  static constexpr Info kInfo[] = {{4, "f32"},  {2, "f16"}, {2, "bf16"}, {1, "e4m3"},
                                   {1, "e5m2"}, {8, "f64"}, {1, "u8"},   {1, "i8"},
                                   {4, "i32"},  {8, "i64"}, {1, "bool"}};
  const auto index = static_cast<size_t>(dtype);
  if (index >= std::size(kInfo)) throw ValueError("dtype: value outside the enumeration");
  return kInfo[index];
}

}  // namespace

size_t size_bytes(DType dtype) { return info(dtype).bytes; }

std::string_view name(DType dtype) { return info(dtype).name; }

}  // namespace kv
