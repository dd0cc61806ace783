#include "cuda/sm90/decode/decode_kernel.cuh"

namespace kv::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

__device__ float block_reduce(float x, bool take_max, float* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, x, step);
    x = take_max ? fmaxf(x, other) : x + other;
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (int w = 1; w < kWarps; ++w) x = take_max ? fmaxf(x, shared[w]) : x + shared[w];
  __syncthreads();
  return x;
}

/// One block per query head of a split sequence. Parts are weighed and added in the plan's order,
/// over threads in a fixed order: the same plan gives the same bits.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ DecodeParams p) {
  constexpr int kLanes = kHeadDim / 4, kParts = kThreads / kLanes;
  __shared__ float reduced[kWarps];
  __shared__ float4 gathered[kParts][kLanes];
  extern __shared__ float weight[];  // of every part
  let_dependents_start();
  const int rows = p.heads * p.q_per_kv;
  const DecodeMerge merge = p.merges[blockIdx.x / rows];
  const int row = static_cast<int>(blockIdx.x) % rows;
  const int64_t first = int64_t{merge.first_partial} * rows + row;
  wait_for_predecessor();

  const auto* sums = reinterpret_cast<const float2*>(p.partial_sums);
  float top = -1e30f;
  for (int i = threadIdx.x; i < merge.num_partials; i += kThreads) {
    top = fmaxf(top, sums[first + int64_t{i} * rows].x);
  }
  top = block_reduce(top, true, reduced);
  float total = 0;
  for (int i = threadIdx.x; i < merge.num_partials; i += kThreads) {
    const float2 part = sums[first + int64_t{i} * rows];
    const float w = exp2_fast(part.x - top);
    weight[i] = w;
    total += w * part.y;
  }
  total = block_reduce(total, false, reduced);
  const int64_t head = (int64_t{merge.head_group} * p.heads) * p.q_per_kv + row;
  if (p.sinks != nullptr) total += exp2_fast(__ldg(p.sinks + head) * kLog2E - top);

  const int lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes;
  float4 sum = {0, 0, 0, 0};
  if (part < kParts) {
#pragma unroll 4
    for (int i = part; i < merge.num_partials; i += kParts) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(
                                  p.partial_out + (first + int64_t{i} * rows) * kHeadDim) + lane);
      const float w = weight[i];
      sum.x += w * x.x, sum.y += w * x.y, sum.z += w * x.z, sum.w += w * x.w;
    }
    gathered[part][lane] = sum;
  }
  __syncthreads();
  if (part != 0) return;
  for (int i = 1; i < kParts; ++i) {
    const float4 x = gathered[i][lane];
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  }
  const float factor = 1 / total;
  const int64_t at = __ldg(p.query_row + merge.seq) * p.out_row_stride + head * p.out_head_stride;
  if (p.out_is_f32) {
    float* to = static_cast<float*>(p.out) + at + 4 * lane;
    to[0] = sum.x * factor, to[1] = sum.y * factor, to[2] = sum.z * factor, to[3] = sum.w * factor;
  } else {
    auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.out) + at + 4 * lane);
    to[0] = bf16_pair(sum.x * factor, sum.y * factor);
    to[1] = bf16_pair(sum.z * factor, sum.w * factor);
  }
}

template <int kHeadDim>
void launch(const DecodeLaunch& l) {
  launch_overlapping(combine_kernel<kHeadDim>, l.num_merges * l.params.heads * l.params.q_per_kv,
                     kThreads, l.most_partials * static_cast<int>(sizeof(float)), l.stream,
                     l.params);
}

}  // namespace

void launch_combine(const DecodeLaunch& l) {
  if (l.head_dim == 64) return launch<64>(l);
  if (l.head_dim == 96) return launch<96>(l);
  if (l.head_dim == 128) return launch<128>(l);
  launch<256>(l);
}

}  // namespace kv::cuda
