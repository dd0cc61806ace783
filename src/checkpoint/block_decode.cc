#include "checkpoint/block_decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "numeric/bulk.h"
#include "numeric/f16.h"

// The outputs are declared __restrict: without it every store may change the bytes of the block
// (they are of a type that may alias anything), and the loops stay scalar.
namespace kv::block {
namespace {

float f16_at(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return f16::decode(half);
}

// Sixteen-bit elements may lie at odd addresses in safetensors, so they pass through a buffer.
template <void (*kConvert)(const uint16_t*, float*, size_t)>
void decode_halves(const uint8_t* bytes, int64_t count, float* out) {
  std::array<uint16_t, 1024> halves;
  for (int64_t done = 0; done < count;) {
    const auto n = static_cast<size_t>(std::min<int64_t>(count - done, halves.size()));
    std::memcpy(halves.data(), bytes + 2 * done, 2 * n);
    kConvert(halves.data(), out + done, n);
    done += static_cast<int64_t>(n);
  }
}

// For each byte of eight fifth bits their places in eight values: 16 or 0 per byte.
constexpr std::array<uint64_t, 256> make_fifth_bits() {
  std::array<uint64_t, 256> table{};
  for (size_t bits = 0; bits < table.size(); ++bits) {
    for (size_t j = 0; j < 8; ++j) table[bits] |= uint64_t{(bits >> j) & 1} << (8 * j + 4);
  }
  return table;
}
constexpr std::array<uint64_t, 256> kFifthBits = make_fifth_bits();

// The 32 values of five bits of a Q5 block, from its 4 bytes of fifth bits and 16 of pairs.
std::array<uint8_t, 32> unpack_q5(const uint8_t* fifth_bits, const uint8_t* pairs) {
  constexpr uint64_t kLowHalves = 0x0f0f0f0f0f0f0f0f;
  std::array<uint64_t, 2> eight;  // bytes of two values each
  std::memcpy(eight.data(), pairs, sizeof(eight));
  const std::array<uint64_t, 4> q = {
      (eight[0] & kLowHalves) | kFifthBits[fifth_bits[0]],
      (eight[1] & kLowHalves) | kFifthBits[fifth_bits[1]],
      (eight[0] >> 4 & kLowHalves) | kFifthBits[fifth_bits[2]],
      (eight[1] >> 4 & kLowHalves) | kFifthBits[fifth_bits[3]],
  };
  return std::bit_cast<std::array<uint8_t, 32>>(q);
}

// Scales and minima of the eight sub-blocks of a K-quant, 6 bits each in 12 bytes.
struct SubBlocks {
  std::array<float, 8> scale;
  std::array<float, 8> minimum;
};

SubBlocks unpack_sub_blocks(const uint8_t* block) {
  const float d = f16_at(block);
  const float dmin = f16_at(block + 2);
  const uint8_t* s = block + 4;
  SubBlocks sub;
  for (int j = 0; j < 8; ++j) {
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
    const int minimum = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
    const auto i = static_cast<size_t>(j);
    sub.scale[i] = d * static_cast<float>(scale);
    sub.minimum[i] = dmin * static_cast<float>(minimum);
  }
  return sub;
}

}  // namespace

void decode_f32(const uint8_t* blocks, int64_t num_blocks, float* out) {
  std::memcpy(out, blocks, static_cast<size_t>(num_blocks) * sizeof(float));
}

void decode_f16(const uint8_t* blocks, int64_t num_blocks, float* out) {
  decode_halves<f16_decode>(blocks, num_blocks, out);
}

void decode_bf16(const uint8_t* blocks, int64_t num_blocks, float* out) {
  decode_halves<bf16_decode>(blocks, num_blocks, out);
}

void decode_q4_0(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 18, out += 32) {
    const float d = f16_at(blocks);
    const uint8_t* qs = blocks + 2;
    for (int j = 0; j < 16; ++j) out[j] = static_cast<float>((qs[j] & 15) - 8) * d;
    for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<float>((qs[j] >> 4) - 8) * d;
  }
}

void decode_q4_1(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 20, out += 32) {
    const float d = f16_at(blocks);
    const float m = f16_at(blocks + 2);
    const uint8_t* qs = blocks + 4;
    for (int j = 0; j < 16; ++j) out[j] = static_cast<float>(qs[j] & 15) * d + m;
    for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<float>(qs[j] >> 4) * d + m;
  }
}

void decode_q5_0(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 22, out += 32) {
    const float d = f16_at(blocks);
    const std::array<uint8_t, 32> q = unpack_q5(blocks + 2, blocks + 6);
    for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(q[j] - 16) * d;
  }
}

void decode_q5_1(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 24, out += 32) {
    const float d = f16_at(blocks);
    const float m = f16_at(blocks + 2);
    const std::array<uint8_t, 32> q = unpack_q5(blocks + 4, blocks + 8);
    for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(q[j]) * d + m;
  }
}

void decode_q8_0(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 34, out += 32) {
    const float d = f16_at(blocks);
    const uint8_t* qs = blocks + 2;
    for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(qs[j])) * d;
  }
}

void decode_q4_k(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 144, out += 256) {
    const SubBlocks sub = unpack_sub_blocks(blocks);
    for (size_t j = 0; j < 8; ++j) {
      const uint8_t* qs = blocks + 16 + j / 2 * 32;
      const int shift = j % 2 == 0 ? 0 : 4;
      const float scale = sub.scale[j];
      const float minimum = sub.minimum[j];
      float* y = out + 32 * j;
      for (int l = 0; l < 32; ++l) {
        y[l] = scale * static_cast<float>((qs[l] >> shift) & 15) - minimum;
      }
    }
  }
}

void decode_q5_k(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 176, out += 256) {
    const SubBlocks sub = unpack_sub_blocks(blocks);
    const uint8_t* qh = blocks + 16;
    for (size_t j = 0; j < 8; ++j) {
      const uint8_t* qs = blocks + 48 + j / 2 * 32;
      const int shift = j % 2 == 0 ? 0 : 4;
      const int bit = static_cast<int>(j);
      float* y = out + 32 * j;
      for (int l = 0; l < 32; ++l) {
        const int q = ((qs[l] >> shift) & 15) | (((qh[l] >> bit) & 1) << 4);
        y[l] = sub.scale[j] * static_cast<float>(q) - sub.minimum[j];
      }
    }
  }
}

void decode_q6_k(const uint8_t* __restrict blocks, int64_t num_blocks, float* __restrict out) {
  for (int64_t b = 0; b < num_blocks; ++b, blocks += 210, out += 256) {
    const float d = f16_at(blocks + 208);
    for (int part = 0; part < 8; ++part) {  // 32 values each: four of either half of the block
      const int half = part / 4;
      const int quarter = part % 4;
      const uint8_t* ql = blocks + 64 * half + 32 * (quarter % 2);
      const uint8_t* qh = blocks + 128 + 32 * half;
      const uint8_t* scales = blocks + 192 + 8 * half + 2 * quarter;
      const int low_shift = quarter < 2 ? 0 : 4;
      const int high_shift = 2 * quarter;
      float* y = out + 32 * part;
      for (int sixteen = 0; sixteen < 2; ++sixteen) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[sixteen]));
        for (int l = 16 * sixteen; l < 16 * sixteen + 16; ++l) {
          const int q = ((ql[l] >> low_shift) & 15) | (((qh[l] >> high_shift) & 3) << 4);
          y[l] = scale * static_cast<float>(q - 32);
        }
      }
    }
  }
}

}  // namespace kv::block
