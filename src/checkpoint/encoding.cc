#include "checkpoint/encoding.h"

#include <array>
#include <utility>

#include "checkpoint/block_decode.h"

namespace kv {
namespace {

constexpr Encoding kF32{"F32", 1, 4, block::decode_f32};
constexpr Encoding kF16{"F16", 1, 2, block::decode_f16};
constexpr Encoding kBf16{"BF16", 1, 2, block::decode_bf16};
constexpr Encoding kQ4_0{"Q4_0", 32, 18, block::decode_q4_0};
constexpr Encoding kQ4_1{"Q4_1", 32, 20, block::decode_q4_1};
constexpr Encoding kQ5_0{"Q5_0", 32, 22, block::decode_q5_0};
constexpr Encoding kQ5_1{"Q5_1", 32, 24, block::decode_q5_1};
constexpr Encoding kQ8_0{"Q8_0", 32, 34, block::decode_q8_0};
constexpr Encoding kQ4_K{"Q4_K", 256, 144, block::decode_q4_k};
constexpr Encoding kQ5_K{"Q5_K", 256, 176, block::decode_q5_k};
constexpr Encoding kQ6_K{"Q6_K", 256, 210, block::decode_q6_k};

constexpr Encoding unreadable(std::string_view name, int block_values, int block_bytes) {
  return {name, block_values, block_bytes, nullptr};
}

struct NumberedEncoding {
  uint32_t number;
  Encoding encoding;
};

constexpr std::array<NumberedEncoding, 33> kGgufTypes{{
    {0, kF32},
    {1, kF16},
    {2, kQ4_0},
    {3, kQ4_1},
    {6, kQ5_0},
    {7, kQ5_1},
    {8, kQ8_0},
    {10, unreadable("Q2_K", 256, 84)},
    {11, unreadable("Q3_K", 256, 110)},
    {12, kQ4_K},
    {13, kQ5_K},
    {14, kQ6_K},
    {15, unreadable("Q8_K", 256, 292)},
    {16, unreadable("IQ2_XXS", 256, 66)},
    {17, unreadable("IQ2_XS", 256, 74)},
    {18, unreadable("IQ3_XXS", 256, 98)},
    {19, unreadable("IQ1_S", 256, 50)},
    {20, unreadable("IQ4_NL", 32, 18)},
    {21, unreadable("IQ3_S", 256, 110)},
    {22, unreadable("IQ2_S", 256, 82)},
    {23, unreadable("IQ4_XS", 256, 136)},
    {24, unreadable("I8", 1, 1)},
    {25, unreadable("I16", 1, 2)},
    {26, unreadable("I32", 1, 4)},
    {27, unreadable("I64", 1, 8)},
    {28, unreadable("F64", 1, 8)},
    {29, unreadable("IQ1_M", 256, 56)},
    {30, kBf16},
    {34, unreadable("TQ1_0", 256, 54)},
    {35, unreadable("TQ2_0", 256, 66)},
    {39, unreadable("MXFP4", 32, 17)},
    {40, unreadable("NVFP4", 64, 36)},
    {41, unreadable("Q1_0", 128, 18)},
}};

// Sub-byte types are packed: two F4 in a byte, four F6 in three.
constexpr std::array<Encoding, 22> kSafetensorsTypes{{
    kF32,
    kF16,
    kBf16,
    unreadable("BOOL", 1, 1),
    unreadable("F4", 2, 1),
    unreadable("F6_E2M3", 4, 3),
    unreadable("F6_E3M2", 4, 3),
    unreadable("U8", 1, 1),
    unreadable("I8", 1, 1),
    unreadable("F8_E5M2", 1, 1),
    unreadable("F8_E4M3", 1, 1),
    unreadable("F8_E8M0", 1, 1),
    unreadable("F8_E4M3FNUZ", 1, 1),
    unreadable("F8_E5M2FNUZ", 1, 1),
    unreadable("I16", 1, 2),
    unreadable("U16", 1, 2),
    unreadable("I32", 1, 4),
    unreadable("U32", 1, 4),
    unreadable("C64", 1, 8),
    unreadable("F64", 1, 8),
    unreadable("I64", 1, 8),
    unreadable("U64", 1, 8),
}};

}  // namespace

const Encoding* gguf_encoding(uint32_t type) {
  for (const NumberedEncoding& known : kGgufTypes) {
    if (known.number == type) return &known.encoding;
  }
  return nullptr;
}

const Encoding* safetensors_encoding(std::string_view dtype) {
  for (const Encoding& known : kSafetensorsTypes) {
    if (known.name == dtype) return &known;
  }
  return nullptr;
}

std::string readable_encodings() {
  std::string list;
  for (const NumberedEncoding& known : kGgufTypes) {
    if (known.encoding.decode == nullptr) continue;
    if (!list.empty()) list += ", ";
    list += known.encoding.name;
  }
  return list;
}

}  // namespace kv
