#pragma once

#include <cstdint>

#include "cuda/device.h"

namespace kv::cuda {

/// Reads `bytes` (a multiple of 16 KiB) once, by bulk copies into shared memory, and does nothing
/// with them: what this card can read. Launches on `stream`.
void read_all(const void* data, int64_t bytes, StreamHandle stream);

/// Fills bf16 values with N(0, 1) numbers of a counter-based generator. For benches and tests.
void fill_normal(uint16_t* values, int64_t count, uint64_t seed, StreamHandle stream);

}  // namespace kv::cuda
