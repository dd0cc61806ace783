#include "ops/attend.h"

#include <fmt/core.h>

#include "kvscale/error.h"
#include "ops/attend_cpu.h"
#include "ops/attend_cuda.h"
#include "ops/cache_checks.h"
#include "tensor/shape.h"

namespace kv {
namespace {

void check_shapes(const AttendParams& p) {
  Dim tokens{"num_tokens"}, heads{"num_q_heads"}, dim{"head_dim", p.cache.page.head_dim};
  Dim value_dim{"value_dim", p.cache.page.value_dim};
  Dim seqs{"num_seqs", static_cast<int64_t>(p.seq_lens.size())}, blocks{"max_blocks"};
  expect("attend", "q", p.q, DType::kBF16, {&tokens, &heads, &dim});
  expect("attend", "out", p.out, {&tokens, &heads, &value_dim});
  expect("attend", "block_table", p.block_table, DType::kI32, {&seqs, &blocks});
  if (p.out.dtype != DType::kBF16 && p.out.dtype != DType::kF32) {
    throw ShapeError(
        fmt::format("attend: out: expected dtype bf16 or f32, found {}", name(p.out.dtype)));
  }
  if (heads.size % p.cache.page.num_kv_heads != 0) {
    throw ShapeError(
        fmt::format("attend: q: expected num_q_heads a multiple of num_kv_heads = {}, found {}",
                    p.cache.page.num_kv_heads, heads.size));
  }
  if (p.query_start.size() != p.seq_lens.size() + 1 || p.query_start.front() != 0 ||
      p.query_start.back() != tokens.size) {
    throw ShapeError(fmt::format("attend: query_start: expected {} numbers from 0 to {}",
                                 p.seq_lens.size() + 1, tokens.size));
  }
}

/// Blocks before this one are never read.
int64_t first_block_read(const AttendParams& p, int32_t first_query, Device device) {
  if (device == Device::kCuda) return 0;
  return first_key_kept(p.window, first_query) / p.cache.page.block_size;
}

void check_sequence(const AttendParams& p, size_t seq, Device device) {
  const int32_t queries = p.query_start[seq + 1] - p.query_start[seq], seq_len = p.seq_lens[seq];
  if (queries < 0 || queries > seq_len) {
    throw ValueError(
        fmt::format("attend: sequence {}: expected 0 to seq_len = {} queries, found {}", seq,
                    seq_len, queries));
  }
  const int64_t block_size = p.cache.page.block_size,
                needed = (seq_len + block_size - 1) / block_size;
  if (needed > p.block_table.sizes[1]) {
    throw ValueError(
        fmt::format("attend: sequence {}: {} tokens need {} blocks, block_table has {} columns",
                    seq, seq_len, needed, p.block_table.sizes[1]));
  }
  const int32_t* row =
      p.block_table.as<const int32_t>() + static_cast<int64_t>(seq) * p.block_table.strides[0];
  for (int64_t i = first_block_read(p, seq_len - queries, device); i < needed; ++i) {
    if (row[i] < 0 || row[i] >= p.cache.num_blocks) {
      throw ValueError(
          fmt::format("attend: block_table: sequence {} column {}: expected 0 to {}, found {}", seq,
                      i, p.cache.num_blocks - 1, row[i]));
    }
  }
}

void check(const AttendParams& p, Device device) {
  check_shapes(p);
  for (size_t seq = 0; seq < p.seq_lens.size(); ++seq) check_sequence(p, seq, device);
  for (const Side side : p.cache.page.stored_sides())
    check_scales("attend", p.cache, side, side == Side::kK ? p.k_scale : p.v_scale);
  if (!p.sinks.empty() && static_cast<int64_t>(p.sinks.size()) != p.q.sizes[1]) {
    throw ShapeError(fmt::format("attend: sinks: expected [{}] (num_q_heads), found [{}]",
                                 p.q.sizes[1], p.sinks.size()));
  }
  if (p.window < 0 || p.soft_cap < 0 || p.keys_per_split < 0) {
    throw ValueError(
        fmt::format("attend: expected window, soft_cap and keys_per_split >= 0, found {}, {}, {}",
                    p.window, p.soft_cap, p.keys_per_split));
  }
}

}  // namespace

std::vector<KernelUsed> attend(std::span<const AttendParams> params, Device device) {
  for (const AttendParams& p : params) {
    check(p, device);
    if (device == Device::kCuda) {
      if (!p.cache.page.holds_latents) continue;
      throw UnsupportedError("attend: latents (MLA): the cuda twin has none, the cpu twin has");
    }
    const PageLayout& page = p.cache.page;
    if (p.math == Math::kFp8 && (has_inline_scales(page.side(Side::kK).format) ||
                                 has_inline_scales(page.side(Side::kV).format))) {
      throw UnsupportedError(
          "attend: needed math=fp8 over inline scales, the cpu twin supports math=bf16 there");
    }
  }
  return device == Device::kCuda ? attend_cuda(params) : attend_cpu(params);
}

}  // namespace kv
