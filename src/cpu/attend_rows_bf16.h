#pragma once

#include "cpu/attend_rows.h"

namespace kv::cpu {

/// Whether the forced or best target has AVX512-BF16 and this machine's `vdpbf16ps` is faster than
/// its F32 multiply-adds: twice as fast on AMD, half as fast on Intel.
bool bf16_dot_pays();

/// attend_rows through `vdpbf16ps`, which multiplies pairs of BF16 and adds to F32.
///
/// Rounded: each probability, times its key's inline V scale, to BF16 (relative error up to 2^-8);
/// all sums and the softmax are in F32, and the sum that divides the result is that of the
/// probabilities before their rounding. Exact: Q, K and V as stored, codes widened without their
/// scales. Subnormal BF16 inputs and subnormal F32 results count as 0.
///
/// Only where bf16_dot_pays() or at least avx512_bf16_allowed().
void attend_rows_bf16(const AttendRows& rows, AttendScratch& scratch);

}  // namespace kv::cpu
