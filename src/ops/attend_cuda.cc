#include "ops/attend_cuda.h"

#include "cuda/decode.h"
#include "cuda/device.h"
#include "cuda/prefill.h"
#include "kvscale/error.h"

namespace kv {
namespace {

template <class T>
cuda::DeviceBuffer uploaded(std::span<const T> host, cuda::StreamHandle stream) {
  cuda::DeviceBuffer buffer(static_cast<int64_t>(host.size_bytes()));
  cuda::upload(buffer.data(), host.data(), buffer.bytes(), stream);
  return buffer;
}

/// The sequences of a call by what serves them: one query each is a decode step.
struct Sequences {
  std::vector<int32_t> decode_lens, decode_rows, decode_tables;  // tables side by side
  std::vector<cuda::PrefillSequence> prefill;                    // in the call's own tables
};

Sequences sort_sequences(const AttendParams& p) {
  Sequences out;
  for (size_t s = 0; s < p.seq_lens.size(); ++s) {
    const int32_t queries = p.query_start[s + 1] - p.query_start[s];
    const int32_t* row =
        p.block_table.as<const int32_t>() + static_cast<int64_t>(s) * p.block_table.strides[0];
    if (queries == 1) {
      out.decode_lens.push_back(p.seq_lens[s]);
      out.decode_rows.push_back(p.query_start[s]);
      out.decode_tables.insert(out.decode_tables.end(), row, row + p.block_table.sizes[1]);
    } else if (queries > 1) {
      out.prefill.push_back({static_cast<int32_t>(s), p.query_start[s], queries, p.seq_lens[s]});
    }
  }
  return out;
}

/// What decode and prefill take alike.
template <class Args>
Args args_of(const AttendParams& p) {
  Args a;
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

cuda::DecodePlan plan_of(const AttendParams& p, const Sequences& sequences) {
  cuda::DecodePlanOptions options;
  options.blocks = cuda::device_info().num_sms;
  options.window = p.window;
  options.batch_invariant = p.batch_invariant;
  options.keys_per_split = p.keys_per_split;
  const cuda::DecodeShape shape =
      cuda::decode_shape(p.cache.page, p.cache.block_stride, cuda::device_info().shared_bytes);
  return cuda::plan_decode(shape, sequences.decode_lens, sequences.decode_rows, options);
}

/// Scales and sinks of a call, in device memory.
struct DeviceScales {
  DeviceScales(const AttendParams& p, cuda::StreamHandle stream)
      : k(uploaded(p.k_scale, stream)),
        v(uploaded(p.v_scale, stream)),
        sinks(uploaded(p.sinks, stream)) {}

  template <class Args>
  void give(Args& a) const {
    a.k_scale = k.as<const float>();
    a.v_scale = v.as<const float>();
    a.sinks = sinks.bytes() > 0 ? sinks.as<const float>() : nullptr;
  }

  cuda::DeviceBuffer k, v, sinks;
};

std::string run_decode(const AttendParams& p, const Sequences& sequences,
                       const DeviceScales& scales, const cuda::Stream& stream) {
  const cuda::DecodeRun run(plan_of(p, sequences), p.q.sizes[1] / p.cache.page.num_kv_heads,
                            p.cache.page.head_dim, stream.handle());
  const auto table = uploaded(std::span<const int32_t>(sequences.decode_tables), stream.handle());
  auto a = args_of<cuda::DecodeArgs>(p);
  scales.give(a);
  a.block_table = table.as<const int32_t>();
  a.table_stride = p.block_table.sizes[1];
  const std::string name = cuda::decode(a, run, stream.handle());
  stream.synchronize();
  return name;
}

std::string run_prefill(const AttendParams& p, const Sequences& sequences,
                        const DeviceScales& scales, const cuda::Stream& stream) {
  auto a = args_of<cuda::PrefillArgs>(p);
  scales.give(a);
  const auto tiles = cuda::plan_prefill(
      sequences.prefill, static_cast<int>(p.cache.page.num_kv_heads), static_cast<int>(a.q_per_kv));
  const auto device_tiles = uploaded(std::span(tiles.data(), tiles.size()), stream.handle());
  const auto rows = static_cast<size_t>(p.seq_lens.size());
  const std::span table_words(p.block_table.as<const int32_t>(),
                              rows == 0
                                  ? 0
                                  : (rows - 1) * static_cast<size_t>(p.block_table.strides[0]) +
                                        static_cast<size_t>(p.block_table.sizes[1]));
  const auto table = uploaded(table_words, stream.handle());
  a.block_table = table.as<const int32_t>();
  a.table_stride = p.block_table.strides[0];
  a.tiles = device_tiles.as<const cuda::PrefillTile>();
  a.num_tiles = static_cast<int>(tiles.size());
  const std::string name = cuda::prefill(a, stream.handle());
  stream.synchronize();
  return name;
}

KernelUsed attend_one(const AttendParams& p, const cuda::Stream& stream) {
  if (p.q.device != Device::kCuda || p.out.device != Device::kCuda)
    throw ValueError("attend: q and out: expected device memory for the CUDA twin, found host");
  const Sequences sequences = sort_sequences(p);
  const DeviceScales scales(p, stream.handle());
  std::string name;
  if (!sequences.prefill.empty()) name = run_prefill(p, sequences, scales, stream);
  if (!sequences.decode_lens.empty()) {
    name += (name.empty() ? "" : "+") + run_decode(p, sequences, scales, stream);
  }
  return {name.empty() ? "attend_cuda/sm90/no_queries" : name};
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
