#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "ops/kernel.h"
#include "tensor/view.h"

namespace kv {

/// Numerics of the two matmuls of attention.
///   kBf16  codes are widened exactly, Q and P keep at least 16 bits (Triton and FlashInfer class);
///          a prefill on CUDA multiplies them with inline scales in F16 (11 bits)
///   kFp8   Q (per query, a power of two as scale) and P (offset by 2^8) through E4M3 too
///          (FlashAttention-3 class); a side stored in BF16 is read as with kBf16
enum class Math : uint8_t { kBf16, kFp8 };

/// Attention of several sequences whose pages lie in one cache.
struct AttendParams {
  TensorView q, out;
  CacheView cache;
  TensorView block_table;
  std::span<const int32_t> seq_lens;
  std::span<const int32_t> query_start;
  std::span<const float> k_scale, v_scale;
  float softmax_scale = 1;
  int32_t window = 0;  // 0 = none; else a query sees itself and window - 1 earlier tokens
  float soft_cap = 0;  // 0 = none; else scores become cap * tanh(score / cap)
  Math math = Math::kBf16;
  /// Partial results every so many keys, combined in order; 0 = as the twin has it (CPU: every 512
  /// keys, CUDA: one pass).
  int32_t keys_per_split = 0;
  std::span<const float> sinks = {};  // per query head, the score of a key without a value; or none
  /// false: decode on CUDA splits keys as suits the whole batch, not at keys_per_split; the plan is
  /// in the kernel's name. Twins that know one plan only keep it.
  bool batch_invariant = true;
};

/// out = softmax(softmax_scale * q K^T, causal) V over paged keys and values, current tokens
/// included.
///
/// q, out       [num_tokens, num_q_heads, head_dim]; q bf16, out bf16 or f32; num_q_heads a
/// multiple of num_kv_heads. Over latents out has value_dim values: V is the first value_dim of K,
/// read through K's scale (v_scale is not read), CPU only. block_table  [num_seqs, max_blocks]
/// int32, -1 = none seq_lens [num_seqs] tokens in the cache, the queries' own included; 0 with no
/// queries is allowed query_start  [num_seqs + 1] rows of q of each sequence: query i of sequence s
/// stands at position
///              seq_lens[s] - num_queries + i and sees the positions up to its own
/// k_scale      [num_kv_heads] fp32 > 0 for a format with static scales, else not read
/// sinks        [num_q_heads] or empty: exp(sink) joins the softmax's denominator
///
/// On CUDA q, out and the pages are device memory, everything else is host memory; the call returns
/// when the result is there. cuda/decode.h and prefill.h have the launches without copies and
/// waiting. A sequence with one query is a decode step there, whose bits are not those of a
/// prefill.
///
/// Slots at and after seq_len are never read; nor, on the CPU, do those before every query's window
/// change anything, and blocks that end before first_key_kept() of its first query may be -1. A
/// query's result is the same bits whatever else is in the call and however its prefill was
/// chunked, for one keys_per_split on one device. FLOPs: 4 * head_dim per query head and visible
/// key; bytes: the visible pages, once per sequence and KV head. Throws ShapeError, ValueError,
/// UnsupportedError.
///
/// Several caches (arms) are served by one call, so that their work shares the threads; what ran is
/// told for each.
std::vector<KernelUsed> attend(std::span<const AttendParams> params, Device device);
inline KernelUsed attend(const AttendParams& params, Device device) {
  return attend({&params, 1}, device).front();
}

/// The same in double, one query after another, written to be read. `out` must be f32.
void attend_ref(const AttendParams& params);

}  // namespace kv
