#pragma once

#include <cstdint>
#include <string>

#include "cache/kv_cache.h"
#include "cuda/decode_plan.h"
#include "cuda/device.h"

namespace kv::cuda {

/// A plan in device memory, with room for its partial results. Made outside of what is captured in
/// a graph or timed; may be run any number of times, on one stream at a time.
class DecodeRun {
 public:
  DecodeRun(const DecodePlan& plan, int64_t q_per_kv, int64_t head_dim, StreamHandle stream);

  const DecodePlan& plan() const { return plan_; }
  const DecodeItem* items() const { return items_.as<const DecodeItem>(); }
  const DecodeMerge* merges() const { return merges_.as<const DecodeMerge>(); }
  float* partial_out() const { return partial_out_.as<float>(); }
  float* partial_sums() const { return partial_sums_.as<float>(); }

 private:
  DecodePlan plan_;
  DeviceBuffer items_, merges_, partial_out_, partial_sums_;
};

/// One decode step; all pointers in device memory, strides in elements.
struct DecodeArgs {
  const uint16_t* q = nullptr;  // bf16, rows as the plan names them
  int64_t q_row_stride = 0, q_head_stride = 0;
  void* out = nullptr;  // bf16 or f32
  bool out_is_f32 = false;
  int64_t out_row_stride = 0, out_head_stride = 0;
  CacheView cache;
  const int32_t* block_table = nullptr;  // [num_seqs, table_stride]
  int64_t table_stride = 0;
  const float *k_scale = nullptr, *v_scale = nullptr;  // [num_kv_heads], for static scales
  const float* sinks = nullptr;  // [num_q_heads] score of a key without a value; or none
  int64_t q_per_kv = 1;
  float softmax_scale = 1, soft_cap = 0;
  int window = 0;
  bool fp8_math = false;
  /// How many keys at the end of each sequence the launch before this one on the stream may have
  /// written (a decode step's own append: 1). Older pages, and the block table, are then read while
  /// that launch still runs, so what is older than it must be complete when it lets others start:
  /// after store_kv it is. -1: all of them; nothing is read before it has ended.
  int fresh_keys = -1;
};

/// Launches the step and, where the plan split sequences, the combination of the parts. Returns the
/// name of what runs, plan included. Throws UnsupportedError naming what is needed and supported.
std::string decode(const DecodeArgs& args, const DecodeRun& run, StreamHandle stream);

}  // namespace kv::cuda
