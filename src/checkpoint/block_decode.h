#pragma once

#include <cstdint>

/// From the bytes of a file to floats, one function per encoding of encoding.h; the table there
/// says how long a block is. `blocks` needs no alignment. The order of the operations is the one
/// of gguf 0.19's dequantization, to which the results are equal bit for bit.
namespace kv::block {

void decode_f32(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_f16(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_bf16(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q4_0(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q4_1(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q5_0(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q5_1(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q8_0(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q4_k(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q5_k(const uint8_t* blocks, int64_t num_blocks, float* out);
void decode_q6_k(const uint8_t* blocks, int64_t num_blocks, float* out);

}  // namespace kv::block
