#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kv {

/// Element types of tensors in memory and in files. E4M3 is the "fn" flavour of OCP OFP8 1.0 (max
/// 448, no infinity).
enum class DType : uint8_t { kF32, kF16, kBF16, kE4M3, kE5M2, kF64, kU8, kI8, kI32, kI64, kBool };

/// Bytes of one element.
size_t size_bytes(DType dtype);

/// Lower-case name as used in messages and records: "bf16", "e4m3", ...
std::string_view name(DType dtype);

}  // namespace kv
