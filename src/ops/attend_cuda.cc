#include "ops/attend_cuda.h"

#include <fmt/core.h>

#include "cuda/decode.h"
#include "cuda/device.h"
#include "kvscale/error.h"

namespace kv {
namespace {

template <class T>
cuda::DeviceBuffer uploaded(std::span<const T> host, cuda::StreamHandle stream) {
  cuda::DeviceBuffer buffer(static_cast<int64_t>(host.size_bytes()));
  cuda::upload(buffer.data(), host.data(), buffer.bytes(), stream);
  return buffer;
}

/// The sequences of a call that have one query each, in order: what one decode step takes.
struct DecodeSequences {
  std::vector<int32_t> seq_lens, query_row, block_table;
  int64_t columns = 0;
};

DecodeSequences decode_sequences(const AttendParams& p) {
  DecodeSequences out;
  out.columns = p.block_table.sizes[1];
  for (size_t s = 0; s < p.seq_lens.size(); ++s) {
    const int32_t queries = p.query_start[s + 1] - p.query_start[s];
    if (queries == 0) continue;
    if (queries != 1) {
      throw UnsupportedError(fmt::format(
          "attend: cuda supports 0 or 1 query per sequence, needed {} (sequence {})", queries, s));
    }
    out.seq_lens.push_back(p.seq_lens[s]);
    out.query_row.push_back(p.query_start[s]);
    const int32_t* row =
        p.block_table.as<const int32_t>() + static_cast<int64_t>(s) * p.block_table.strides[0];
    out.block_table.insert(out.block_table.end(), row, row + out.columns);
  }
  return out;
}

cuda::DecodeArgs args_of(const AttendParams& p) {
  cuda::DecodeArgs a;
  a.q = p.q.as<const uint16_t>();
  a.q_row_stride = p.q.strides[0];
  a.q_head_stride = p.q.strides[1];
  a.out = p.out.data;
  a.out_is_f32 = p.out.dtype == DType::kF32;
  a.out_row_stride = p.out.strides[0];
  a.out_head_stride = p.out.strides[1];
  a.cache = p.cache;
  a.q_per_kv = p.q.sizes[1] / p.cache.page.num_kv_heads;
  a.softmax_scale = p.softmax_scale;
  a.soft_cap = p.soft_cap;
  a.window = p.window;
  a.fp8_math = p.math == Math::kFp8;
  return a;
}

cuda::DecodePlan plan_of(const AttendParams& p, std::span<const int32_t> seq_lens) {
  cuda::DecodePlanOptions options;
  options.blocks = cuda::device_info().num_sms;
  options.window = p.window;
  options.batch_invariant = p.batch_invariant;
  options.keys_per_split = p.keys_per_split;
  const cuda::DecodeShape shape = cuda::decode_shape(p.cache.page, p.cache.block_stride,
                                                     cuda::device_info().shared_bytes);
  return cuda::plan_decode(shape, seq_lens, options);
}

KernelUsed attend_one(const AttendParams& p, const cuda::Stream& stream) {
  if (p.q.device != Device::kCuda || p.out.device != Device::kCuda)
    throw ValueError("attend: q and out: expected device memory for the CUDA twin, found host");
  const DecodeSequences sequences = decode_sequences(p);
  const cuda::DecodeRun run(plan_of(p, sequences.seq_lens),
                            p.q.sizes[1] / p.cache.page.num_kv_heads, p.cache.page.head_dim,
                            stream.handle());
  const auto on_device = [&](const auto& host) {
    return uploaded(std::span(host.data(), host.size()), stream.handle());
  };
  const auto seq_lens = on_device(sequences.seq_lens), query_row = on_device(sequences.query_row),
             table = on_device(sequences.block_table), k_scale = on_device(p.k_scale),
             v_scale = on_device(p.v_scale), sinks = on_device(p.sinks);
  cuda::DecodeArgs a = args_of(p);
  a.block_table = table.as<const int32_t>();
  a.table_stride = sequences.columns;
  a.seq_lens = seq_lens.as<const int32_t>();
  a.query_row = query_row.as<const int32_t>();
  a.k_scale = k_scale.as<const float>();
  a.v_scale = v_scale.as<const float>();
  a.sinks = p.sinks.empty() ? nullptr : sinks.as<const float>();
  KernelUsed used{cuda::decode(a, run, stream.handle())};
  stream.synchronize();
  return used;
}

}  // namespace

std::vector<KernelUsed> attend_cuda(std::span<const AttendParams> params) {
  cuda::device_info();
  const cuda::Stream stream;
  std::vector<KernelUsed> used;
  for (const AttendParams& p : params) used.push_back(attend_one(p, stream));
  return used;
}

}  // namespace kv
