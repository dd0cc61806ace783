#include "cuda/sm90/decode/decode_kernel.cuh"

namespace kv::cuda {
namespace {

// Threads of a block: few where few parts are, so that more blocks run at once.
constexpr int kFewThreads = 128, kManyThreads = 512;
// Parts that a thread reads before it knows any maximum: their loads then overlap those of the
// sums.
constexpr int kAhead = 8;

/// Maximum and total of a query's parts, by every warp for itself: no block barrier on the way.
__device__ float2 total_of_parts(const float2* sums, int count) {
  const int lane = threadIdx.x % 32;
  float top = -1e30f, total = 0;
  for (int i = lane; i < count; i += 32) {
    const float2 part = __ldcg(sums + i);
    const float larger = fmaxf(top, part.x);
    total = total * exp2_fast(top - larger) + part.y * exp2_fast(part.x - larger);
    top = larger;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(~0u, top, offset);
    const float theirs = __shfl_xor_sync(~0u, total, offset), larger = fmaxf(top, other);
    // Lanes a and b add the same two numbers in either order: all end with the same bits.
    total = total * exp2_fast(top - larger) + theirs * exp2_fast(other - larger);
    top = larger;
  }
  return {top, total};
}

__device__ void add_weighed(float4& sum, const float4& x, float w) {
  sum.x += w * x.x, sum.y += w * x.y, sum.z += w * x.z, sum.w += w * x.w;
}

/// One block per query head of a split sequence. Parts are weighed and added in the plan's order,
/// over threads in a fixed order: the same plan gives the same bits.
template <int kHeadDim, int kThreads>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ DecodeParams p) {
  constexpr int kLanes = kHeadDim / 4, kParts = kThreads / kLanes;
  __shared__ float4 gathered[kParts][kLanes];
  let_dependents_start();
  const int rows = p.heads * p.q_per_kv, row = static_cast<int>(blockIdx.x) % rows;
  const DecodeMerge merge = p.merges[blockIdx.x / rows];
  const int64_t first = int64_t{merge.first_partial} * rows + row;
  const auto* sums = reinterpret_cast<const float2*>(p.partial_sums) +
                     int64_t{row} * p.num_partials + merge.first_partial;
  const auto* parts = reinterpret_cast<const float4*>(p.partial_out) + first * kLanes;
  const int lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes;
  wait_for_predecessor();

  float4 ahead[kAhead];
  float tops[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int i = part + j * kParts;
    const bool is_there = part < kParts && i < merge.num_partials;
    ahead[j] = is_there ? __ldcg(parts + int64_t{i} * rows * kLanes + lane) : float4{0, 0, 0, 0};
    tops[j] = is_there ? __ldcg(&sums[i].x) : -1e30f;
  }
  const float2 all = total_of_parts(sums, merge.num_partials);
  float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kAhead; ++j) add_weighed(sum, ahead[j], exp2_fast(tops[j] - all.x));
  for (int i = part + kAhead * kParts; part < kParts && i < merge.num_partials; i += kParts) {
    add_weighed(sum, __ldcg(parts + int64_t{i} * rows * kLanes + lane),
                exp2_fast(__ldcg(&sums[i].x) - all.x));
  }
  if (part < kParts) gathered[part][lane] = sum;
  __syncthreads();
  if (part != 0) return;
  for (int i = 1; i < kParts; ++i) {
    const float4 x = gathered[i][lane];
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  }
  float total = all.y;
  const int64_t head = (int64_t{merge.head_group} * p.heads) * p.q_per_kv + row;
  if (p.sinks != nullptr) total += exp2_fast(__ldg(p.sinks + head) * kLog2E - all.x);
  const float factor = 1 / total;
  const int64_t at = merge.query_row * p.out_row_stride + head * p.out_head_stride + 4 * lane;
  if (p.out_is_f32) {
    float* to = static_cast<float*>(p.out) + at;
    to[0] = sum.x * factor, to[1] = sum.y * factor, to[2] = sum.z * factor, to[3] = sum.w * factor;
  } else {
    auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.out) + at);
    to[0] = bf16_pair(sum.x * factor, sum.y * factor);
    to[1] = bf16_pair(sum.z * factor, sum.w * factor);
  }
}

template <int kHeadDim>
void launch(const DecodeLaunch& l) {
  const int blocks = l.num_merges * l.params.heads * l.params.q_per_kv;
  constexpr int kPartsOfFew = kAhead * (kFewThreads / (kHeadDim / 4));
  if (l.most_partials <= kPartsOfFew) {
    launch_overlapping(combine_kernel<kHeadDim, kFewThreads>, blocks, kFewThreads, 0, l.stream,
                       l.params);
  } else {
    launch_overlapping(combine_kernel<kHeadDim, kManyThreads>, blocks, kManyThreads, 0, l.stream,
                       l.params);
  }
}

}  // namespace

void launch_combine(const DecodeLaunch& l) {
  if (l.head_dim == 64) return launch<64>(l);
  if (l.head_dim == 96) return launch<96>(l);
  if (l.head_dim == 128) return launch<128>(l);
  launch<256>(l);
}

}  // namespace kv::cuda
