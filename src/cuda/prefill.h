#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "cuda/device.h"

namespace kv::cuda {

/// Rows of one block: query tokens times the query heads of one KV head.
inline constexpr int kPrefillRows = 128;

/// Some queries of one sequence under one KV head: what one block computes.
struct PrefillTile {
  int32_t seq = 0, kv_head = 0;
  int32_t query_row = 0, num_tokens = 0;  // of q and out; at most kPrefillRows / q_per_kv
  int32_t position = 0;                   // of the first token; it sees the keys up to itself
};

/// Sequence `seq` has queries at rows [query_row, query_row + num_queries), the last of seq_len.
struct PrefillSequence {
  int32_t seq = 0, query_row = 0, num_queries = 0, seq_len = 0;
};

/// Longest first: the last blocks to start decide how long the launch runs. Throws UnsupportedError
/// for more than 16 query heads per KV head.
std::vector<PrefillTile> plan_prefill(std::span<const PrefillSequence> sequences, int num_kv_heads,
                                      int q_per_kv);

/// One prefill of several sequences; all pointers in device memory, strides in elements.
struct PrefillArgs {
  const uint16_t* q = nullptr;  // bf16
  int64_t q_row_stride = 0, q_head_stride = 0;
  void* out = nullptr;  // bf16 or f32
  bool out_is_f32 = false;
  int64_t out_row_stride = 0, out_head_stride = 0;
  CacheView cache;
  const int32_t* block_table = nullptr;  // [num_seqs, table_stride]
  int64_t table_stride = 0;
  const float *k_scale = nullptr, *v_scale = nullptr;
  const float* sinks = nullptr;
  int64_t q_per_kv = 1;
  float softmax_scale = 1, soft_cap = 0;
  int window = 0;
  bool fp8_math = false;
  const PrefillTile* tiles = nullptr;  // of plan_prefill
  int num_tiles = 0;
};

/// Launches the prefill and returns the name of what runs. Throws UnsupportedError naming what is
/// needed and supported.
std::string prefill(const PrefillArgs& args, StreamHandle stream);

}  // namespace kv::cuda
