#include "cuda/sm90/decode/decode_kernel.cuh"

namespace kv::cuda {
namespace {

// Parts i, i + 16, i + 32, ... are added up one after another; of the 16 sums those of i, i + 4,
// i + 8 and i + 12, and then the four: an order that depends on nothing but the part's number,
// whatever the launch looks like.
constexpr int kSums = 16, kLastSums = 4;

/// One block per query head of few threads: large batches have blocks enough.
struct ManyHeads {
  static constexpr int kSplits = 1, kPartsAtOnce = kLastSums, kAhead = 8;
};
/// Four blocks per query head, a quarter of head_dim each: a few heads of many parts.
struct FewHeads {
  static constexpr int kSplits = 4, kPartsAtOnce = kSums, kAhead = 12;
};
constexpr int kBlocksOfFew = 1024;  // at most: as many as run at once

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

/// Parts are weighed and added in the plan's order, over threads in a fixed order: the same plan
/// gives the same bits.
template <int kHeadDim, class Shape>
__global__ void combine_kernel(const __grid_constant__ DecodeParams p) {
  constexpr int kRowLanes = kHeadDim / 4, kLanes = kRowLanes / Shape::kSplits;
  constexpr int kParts = Shape::kPartsAtOnce, kSumsOfThread = kSums / kParts;
  __shared__ float4 gathered[kParts][kLanes];
  let_dependents_start();
  const int rows = p.heads * p.q_per_kv, unit = static_cast<int>(blockIdx.x) / Shape::kSplits;
  const int row = unit % rows;
  const DecodeMerge merge = p.merges[unit / rows];
  const int64_t first = int64_t{merge.first_partial} * rows + row;
  const auto* sums = reinterpret_cast<const float2*>(p.partial_sums) +
                     int64_t{row} * p.num_partials + merge.first_partial;
  const int part = threadIdx.x / kLanes, column = static_cast<int>(threadIdx.x) % kLanes;
  const int lane = static_cast<int>(blockIdx.x) % Shape::kSplits * kLanes + column;
  const auto* parts = reinterpret_cast<const float4*>(p.partial_out) + first * kRowLanes + lane;
  wait_for_predecessor();

  // Read before any maximum is known: these loads then overlap those of the sums.
  float4 ahead[Shape::kAhead];
  float tops[Shape::kAhead];
#pragma unroll
  for (int j = 0; j < Shape::kAhead; ++j) {
    const int i = part + j * kParts;
    const bool is_there = i < merge.num_partials;
    ahead[j] = is_there ? __ldcg(parts + int64_t{i} * rows * kRowLanes) : float4{0, 0, 0, 0};
    tops[j] = is_there ? __ldcg(&sums[i].x) : -1e30f;
  }
  const float2 all = total_of_parts(sums, merge.num_partials);
  float4 mine[kSumsOfThread] = {};
#pragma unroll
  for (int j = 0; j < Shape::kAhead; ++j) {
    add_weighed(mine[j % kSumsOfThread], ahead[j], exp2_fast(tops[j] - all.x));
  }
  for (int from = part + Shape::kAhead * kParts; from < merge.num_partials; from += kSums) {
#pragma unroll
    for (int j = 0; j < kSumsOfThread; ++j) {
      const int i = from + j * kParts;
      if (i >= merge.num_partials) break;
      add_weighed(mine[j], __ldcg(parts + int64_t{i} * rows * kRowLanes),
                  exp2_fast(__ldcg(&sums[i].x) - all.x));
    }
  }
#pragma unroll
  for (int j = 1; j < kSumsOfThread; ++j) add_weighed(mine[0], mine[j], 1);
  gathered[part][column] = mine[0];
  __syncthreads();
  if (part != 0) return;
  float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kLastSums; ++i) {
    float4 x = gathered[i][column];
#pragma unroll
    for (int j = i + kLastSums; j < kParts; j += kLastSums) add_weighed(x, gathered[j][column], 1);
    add_weighed(sum, x, 1);
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

template <int kHeadDim, class Shape>
void launch(const DecodeLaunch& l, int units) {
  constexpr int kThreads = kHeadDim / 4 / Shape::kSplits * Shape::kPartsAtOnce;
  launch_overlapping("attend", combine_kernel<kHeadDim, Shape>, units * Shape::kSplits, kThreads, 0,
                     l.stream, l.params);
}

template <int kHeadDim>
void launch(const DecodeLaunch& l) {
  const int units = l.num_merges * l.params.heads * l.params.q_per_kv;
  if (units * FewHeads::kSplits <= kBlocksOfFew) return launch<kHeadDim, FewHeads>(l, units);
  launch<kHeadDim, ManyHeads>(l, units);
}

}  // namespace

void launch_combine(const DecodeLaunch& l) {
  if (l.head_dim == 64) return launch<64>(l);
  if (l.head_dim == 96) return launch<96>(l);
  if (l.head_dim == 128) return launch<128>(l);
  launch<256>(l);
}

}  // namespace kv::cuda
