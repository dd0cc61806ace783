#pragma once

#include "cuda/sm90/prefill/traits.cuh"
#include "cuda/sm90/prefill/wgmma.cuh"

// How keys (warpgroup 0) and values (warpgroup 1) come from the pages into the rings of shared
// memory: BF16 at once, codes by way of a staging area, from where they are widened to F16.

namespace kv::cuda {

__device__ inline void store_chunk(uint32_t at, uint4 w) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(w.x), "r"(w.y), "r"(w.z),
               "r"(w.w)
               : "memory");
}

/// kBytes (4, 8 or 16) without a register between; zeros where nothing is there.
template <int kBytes>
__device__ inline void copy_async(uint32_t to, const uint8_t* from, bool is_there) {
  const int bytes = is_there ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(bytes)
                 : "memory");
  }
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Byte d of the four words, in this order, for each d.
__device__ inline void transpose_4x4(uint32_t (&out)[4], uint32_t a, uint32_t b, uint32_t c,
                                     uint32_t d) {
  const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
  const uint32_t ab_high = __byte_perm(a, b, 0x7362), cd_high = __byte_perm(c, d, 0x7362);
  out[0] = __byte_perm(ab, cd, 0x5410);
  out[1] = __byte_perm(ab, cd, 0x7632);
  out[2] = __byte_perm(ab_high, cd_high, 0x5410);
  out[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

__device__ inline uint4 widen_half(uint32_t a, uint32_t b) {
  return {e4m3_to_f16(a), e4m3_high_to_f16(a), e4m3_to_f16(b), e4m3_high_to_f16(b)};
}

/// Writes 16 codes as two chunks of a row of F16; `unit` counts units within the row.
template <class T>
__device__ void store_unit(uint32_t tile, int row, int unit, uint4 codes) {
  const uint32_t column = tile + unit / 4 * (T::kKeys * 128);
  // Units 4 and up write their halves in the other order: they share banks with units 0 to 3.
  const int first = T::kPadded > 64 ? unit / 4 & 1 : 0;
  const uint2 low = {codes.x, codes.y}, high = {codes.z, codes.w};
  const uint2 sooner = first ? high : low, later = first ? low : high;
  store_chunk(column + swizzled(row, 2 * (unit % 4) + first), widen_half(sooner.x, sooner.y));
  store_chunk(column + swizzled(row, 2 * (unit % 4) + 1 - first), widen_half(later.x, later.y));
}

/// Where the 16 keys lie that a lane looked up, as the block table gives it.
struct RunAt {
  int32_t block = 0, slot = 0;
};

/// Where the keys of a stage lie. Lane i knows where the cells of its i-th 16 keys start: one run
/// of slots, because block sizes are multiples of 16.
class StagePages {
 public:
  __device__ StagePages(const PrefillParams& p, const PrefillTile& tile, int end)
      : p_(p), tile_(tile), end_(end) {}

  /// Nothing waits for what is looked up until it is resolved, a stage later.
  __device__ RunAt look_up(int first, int runs) const {
    const int lane = threadIdx.x % 32, key = first + 16 * lane;
    if (lane >= runs || key >= end_) return {};
    const auto column = static_cast<int>(p_.block_size.quotient(static_cast<uint32_t>(key)));
    return {__ldg(p_.block_table + tile_.seq * p_.table_stride + column),
            key - column * static_cast<int>(p_.block_size.divisor)};
  }
  __device__ int64_t resolve(RunAt at) const {
    return at.block * p_.block_stride + at.slot * p_.slot_stride + tile_.kv_head * p_.head_stride;
  }

  /// Where the cell of the stage's key `key` starts.
  __device__ const uint8_t* cell(int64_t pages, int key) const {
    return run(pages, key / 16) + key % 16 * p_.slot_stride;
  }
  __device__ const uint8_t* run(int64_t pages, int run) const {
    return p_.cache + __shfl_sync(~0u, pages, run);
  }

 private:
  const PrefillParams& p_;
  const PrefillTile& tile_;
  int end_;
};

/// What thread `thread` of a loading warpgroup takes of a stage: piece (thread % kPieces) of the
/// keys thread / kPieces + step * kKeysPerStep.
template <class T, int kPiecesOf>
struct LoaderShare {
  static constexpr int kPieces = kPiecesOf, kKeysPerStep = kLoaderThreads / kPieces;
  static constexpr int kSteps = T::kKeys / kKeysPerStep;
  int piece, first_key;

  __device__ explicit LoaderShare(int thread)
      : piece(thread % kPieces), first_key(thread / kPieces) {}
  __device__ int key(int step) const { return first_key + step * kKeysPerStep; }
  __device__ int run(int step) const {
    if constexpr (kKeysPerStep <= 16) return step * kKeysPerStep / 16;
    return key(step) / 16;
  }
  /// Of the slot within its run of 16.
  __device__ int slot(int step) const {
    return first_key % 16 + (kKeysPerStep < 16 ? step * kKeysPerStep % 16 : 0);
  }
};

/// BF16, and keys of E4M3 products: as they are. The copies of a stage are under way while those of
/// the one before are waited for.
template <class T, Side kSide>
class KeyCopier {
  static constexpr int kPieceValues = 16 / T::kValueBytes, kRowPieces = T::kRowBytes / 16;
  using Share = LoaderShare<T, T::kPadded / kPieceValues>;

 public:
  __device__ KeyCopier(const PrefillParams& p, const PrefillTile& tile, KeyRange range)
      : range_(range),
        pages_(p, tile, range.end),
        share_(threadIdx.x % kLoaderThreads),
        within_((kSide == Side::kK ? 0 : p.v_base) + (is_held() ? 16 * share_.piece : 0)),
        slot_stride_(p.slot_stride) {}

  __device__ void run(uint32_t shared) {
    RunAt ahead = look_up(range_.begin);
    PrefillCursor to, done;
    for (int first = range_.begin; first < range_.end; first += T::kKeys) {
      const int64_t at = pages_.resolve(ahead);
      ahead = look_up(first + T::kKeys);
      barrier_wait(T::empty(shared, kSide, to.stage), to.parity ^ 1);
      copy(T::tile(shared, kSide, to.stage), at, first);
      commit_copies();
      if (first > range_.begin) publish<1>(shared, done);
      to.advance(T::kStages);
    }
    publish<0>(shared, done);
  }

 private:
  __device__ RunAt look_up(int first) const { return pages_.look_up(first, T::kKeys / 16); }
  __device__ bool is_held() const { return kPieceValues * share_.piece < T::kHeadDim; }

  __device__ void copy(uint32_t tile, int64_t pages, int first) const {
    const uint32_t column = tile + share_.piece / kRowPieces * (T::kKeys * T::kRowBytes);
#pragma unroll
    for (int i = 0; i < Share::kSteps; ++i) {
      const int key = share_.key(i);
      const uint8_t* from =
          pages_.run(pages, share_.run(i)) + share_.slot(i) * slot_stride_ + within_;
      copy_async<16>(column + swizzled<T::kRowBytes>(key, share_.piece % kRowPieces), from,
                     first + key < range_.end && is_held());
    }
  }

  /// All but the last kPending stages' copies have arrived.
  template <int kPending>
  __device__ void publish(uint32_t shared, PrefillCursor& done) const {
    wait_for_copies<kPending>();
    async_proxy_fence();
    barrier_arrive(T::full(shared, kSide, done.stage));
    done.advance(T::kStages);
  }

  const KeyRange range_;
  const StagePages pages_;
  const Share share_;
  const int within_;
  const int64_t slot_stride_;
};

/// E4M3: 16 codes of a key come into 16 bytes of shared memory that are this thread's own, are
/// widened from there, and as soon as they are, the next stage's take their place: a whole stage is
/// always on its way, in no register.
template <class T, Side kSide>
class KeyWidener {
  using Share = LoaderShare<T, T::kPadded / 16>;
  static constexpr int kHeldPieces = T::kHeadDim / 16;
  static constexpr int kBatch = 4;  // codes that are read before the first of them is widened
  // V's codes with inline scales start 4 bytes past a multiple of 8.
  static constexpr bool kIsShifted = T::kInline && kSide == Side::kV;
  static constexpr bool kHasScales = T::kInline && kSide == Side::kK;

 public:
  __device__ KeyWidener(const PrefillParams& p, const PrefillTile& tile, KeyRange range)
      : range_(range),
        pages_(p, tile, range.end),
        thread_(threadIdx.x % kLoaderThreads),
        share_(thread_),
        within_(kSide == Side::kK ? 0 : p.v_base),
        slot_stride_(p.slot_stride),
        scale_base_{p.k_scale_base, p.v_scale_base} {}

  __device__ void run(uint32_t shared) {
    const uint32_t mine = T::staging(shared, kSide) + 16 * thread_;
    int64_t at = pages_.resolve(look_up(range_.begin));
    RunAt ahead = look_up(range_.begin + T::kKeys);
    float2 scales = load_scales(at, range_.begin);
#pragma unroll
    for (int i = 0; i < Share::kSteps; i += kBatch) fetch(mine, at, range_.begin, i);
    PrefillCursor to;
    for (int first = range_.begin; first < range_.end; first += T::kKeys) {
      const int next = first + T::kKeys;
      at = pages_.resolve(ahead);
      ahead = look_up(next + T::kKeys);
      barrier_wait(T::empty(shared, kSide, to.stage), to.parity ^ 1);
      widen_stage(T::tile(shared, kSide, to.stage), mine, at, next);
      store_scales(shared, to.stage, scales);
      scales = load_scales(at, next);
      async_proxy_fence();
      barrier_arrive(T::full(shared, kSide, to.stage));
      to.advance(T::kStages);
    }
    wait_for_copies<0>();
  }

 private:
  __device__ RunAt look_up(int first) const { return pages_.look_up(first, T::kKeys / 16); }
  /// Widens a stage into `tile` while the one at `next` is fetched.
  __device__ void widen_stage(uint32_t tile, uint32_t mine, int64_t at, int next) const {
#pragma unroll
    for (int first = 0; first < Share::kSteps; first += kBatch) {
      wait_for_copies<Share::kSteps / kBatch - 1>();
      uint4 codes[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) codes[i] = load_chunk(slot(mine, first + i));
#pragma unroll
      for (uint4& w : codes) w = in_order(w);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        store_unit<T>(tile, share_.key(first + i), share_.piece, codes[i]);
      }
      fetch(mine, at, next, first);
    }
  }

  __device__ static uint32_t slot(uint32_t mine, int step) {
    return mine + step * 16 * kLoaderThreads;
  }
  __device__ static uint4 load_chunk(uint32_t at) {
    uint4 w;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "r"(at)
                 : "memory");
    return w;
  }

  /// Keys past the end and dimensions past head_dim become zeros. Shifted codes are read from 4
  /// bytes before their piece; the first piece, which would read K's scale there, reads the last
  /// piece's last word instead.
  __device__ void fetch(uint32_t mine, int64_t pages, int first, int first_step) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) fetch_one(mine, pages, first, first_step + i);
    commit_copies();
  }

  __device__ void fetch_one(uint32_t mine, int64_t pages, int first, int step) const {
    const uint8_t* side =
        pages_.run(pages, share_.run(step)) + share_.slot(step) * slot_stride_ + within_;
    const bool is_there = first + share_.key(step) < range_.end && share_.piece < kHeldPieces;
    const uint8_t* from = is_there ? side + 16 * share_.piece : side;
    const uint32_t to = slot(mine, step);
    if constexpr (!T::kInline) {
      copy_async<16>(to, from, is_there);
    } else if constexpr (!kIsShifted) {
      copy_async<8>(to, from, is_there);
      copy_async<8>(to + 8, from + 8, is_there);
    } else {
      if (share_.piece == 0) {
        copy_async<4>(to, side + T::kHeadDim - 4, is_there);
        copy_async<4>(to + 4, from, is_there);
      } else {
        copy_async<8>(to, from - 4, is_there);
      }
      copy_async<8>(to + 8, from + 4, is_there);
    }
  }

  /// The four words of a piece; of shifted ones the last is what the next piece read first.
  __device__ uint4 in_order(uint4 w) const {
    if constexpr (!kIsShifted) return w;
    const int next = share_.piece + 1 < kHeldPieces ? share_.piece + 1 : 0;
    return {w.y, w.z, w.w, __shfl_sync(~0u, w.x, next, Share::kPieces)};
  }

  /// Inline scales of K and V: thread i has those of key i. Both come with the keys, because the
  /// softmax needs both and V's tile would be late for it.
  __device__ float2 load_scales(int64_t pages, int first) const {
    if constexpr (!kHasScales) return {0, 0};
    const int key = thread_ % T::kKeys;
    const uint8_t* at = pages_.cell(pages, key);
    if (first + key >= range_.end) return {0, 0};
    return {__ldg(reinterpret_cast<const float*>(at + scale_base_[0])),
            __ldg(reinterpret_cast<const float*>(at + scale_base_[1]))};
  }

  /// V's scales leave relative to a power of two above all that came so far, as in decode: any
  /// range of them fits the weights' F16.
  __device__ void store_scales(uint32_t shared, int stage, float2 scales) {
    if constexpr (!kHasScales) return;
    const float ratio = grow_unit(shared, stage, scales.y);
    if (thread_ < T::kKeys) {
      const float inverse = __uint_as_float(0x7f000000u - __float_as_uint(value_unit_));
      store_float(T::scales(shared, Side::kK, stage) + 4 * thread_, scales.x);
      store_float(T::scales(shared, Side::kV, stage) + 4 * thread_, scales.y * inverse);
    }
    if (thread_ == 0) {
      store_float(T::unit(shared, stage), value_unit_);
      store_float(T::unit(shared, stage) + 4, ratio);
    }
  }

  /// Returns old / new; the same in all threads of the loading warpgroup.
  __device__ float grow_unit(uint32_t shared, int stage, float top) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    if (thread_ % 32 == 0) store_float(T::tops(shared, stage) + 4 * (thread_ / 32), top);
    asm volatile("bar.sync 5, %0;" ::"n"(kLoaderThreads) : "memory");
    const uint4 tops = load_chunk(T::tops(shared, stage));
    top = fmaxf(fmaxf(__uint_as_float(tops.x), __uint_as_float(tops.y)),
                fmaxf(__uint_as_float(tops.z), __uint_as_float(tops.w)));
    if (!(top > value_unit_)) return 1;
    const float old = value_unit_;
    value_unit_ = __uint_as_float((__float_as_uint(top) & 0x7f800000u) + 0x00800000u);
    return old / value_unit_;
  }

  __device__ static void store_float(uint32_t at, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
  }

  const KeyRange range_;
  const StagePages pages_;
  const int thread_;
  const Share share_;
  const int within_;
  const int64_t slot_stride_;
  const int scale_base_[2];
  float value_unit_ = T::kLowestUnit;
};

/// Values of E4M3 products, whose summed dimension must lie along the rows: transposed, a row of
/// kKeys codes for each dimension. Of every 16 keys a thread takes one half of what becomes a
/// chunk, 8 codes of 16 dimensions, by way of shared memory of its own, two stages of it.
///
/// The keys within a chunk are in the order in which a thread holds their weights after the first
/// product: position 4c + i is key 8 (i / 2) + 2c + i % 2.
template <class T>
class ValueTransposer {
  static constexpr int kHalves = T::kKeys / 8, kUnits = kHalves * (T::kPadded / 16);
  static constexpr uint32_t kStageBytes = kUnits * 8 * 16;
  static_assert(kUnits <= kLoaderThreads && T::kKeys == 128);
  static_assert(2 * kStageBytes == 2 * T::kStagingBytes);  // of both sides: keys need none

 public:
  __device__ ValueTransposer(const PrefillParams& p, const PrefillTile& tile, KeyRange range)
      : range_(range),
        pages_(p, tile, range.end),
        thread_(threadIdx.x % kLoaderThreads),
        half_(thread_ % kHalves),
        first_dim_(thread_ / kHalves * 16),
        within_(p.v_base + first_dim_),
        slot_stride_(p.slot_stride) {}

  __device__ void run(uint32_t shared) {
    const uint32_t mine = T::staging(shared, Side::kK) + 16 * thread_;
    RunAt ahead = look_up(range_.begin);
    PrefillCursor to;
    uint32_t buffer = 0;
    int64_t at = pages_.resolve(ahead);
    ahead = look_up(range_.begin + T::kKeys);
    fetch(mine, at, range_.begin);
    for (int first = range_.begin; first < range_.end; first += T::kKeys) {
      const int next = first + T::kKeys;
      at = pages_.resolve(ahead);
      ahead = look_up(next + T::kKeys);
      fetch(mine + (buffer ^ kStageBytes), at, next);
      wait_for_copies<1>();
      barrier_wait(T::empty(shared, Side::kV, to.stage), to.parity ^ 1);
      transpose(T::tile(shared, Side::kV, to.stage), mine + buffer);
      async_proxy_fence();
      barrier_arrive(T::full(shared, Side::kV, to.stage));
      to.advance(T::kStages);
      buffer ^= kStageBytes;
    }
    wait_for_copies<0>();
  }

 private:
  __device__ RunAt look_up(int first) const { return pages_.look_up(first, T::kKeys / 16); }

  /// The i-th key of this thread's half, within its 16: 2c, 2c + 1, 2c + 8, 2c + 9, then those of
  /// the next c.
  __device__ int key(int i) const { return 4 * (half_ & 1) + (i & 4) / 2 + (i & 2) * 4 + (i & 1); }

  __device__ void fetch(uint32_t mine, int64_t pages, int first) const {
    const uint8_t* side = pages_.run(pages, half_ / 2) + within_;
    if (thread_ < kUnits) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const bool is_there =
            first + half_ / 2 * 16 + key(i) < range_.end && first_dim_ < T::kHeadDim;
        copy_async<16>(mine + i * 16 * kUnits, side + key(i) * slot_stride_, is_there);
      }
    }
    commit_copies();
  }

  __device__ void transpose(uint32_t tile, uint32_t mine) const {
    if (thread_ >= kUnits) return;
#pragma unroll
    for (int word = 0; word < 4; word += 2) {
      uint32_t w[8][2];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                     : "=r"(w[i][0]), "=r"(w[i][1])
                     : "r"(mine + i * 16 * kUnits + 4 * word)
                     : "memory");
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t low[4], high[4];
        transpose_4x4(low, w[0][j], w[1][j], w[2][j], w[3][j]);
        transpose_4x4(high, w[4][j], w[5][j], w[6][j], w[7][j]);
#pragma unroll
        for (int d = 0; d < 4; ++d) store(tile, 4 * (word + j) + d, low[d], high[d]);
      }
    }
  }

  __device__ void store(uint32_t tile, int dim, uint32_t low, uint32_t high) const {
    asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(
                     tile + swizzled(first_dim_ + dim, half_ / 2) + half_ % 2 * 8),
                 "r"(low), "r"(high)
                 : "memory");
  }

  const KeyRange range_;
  const StagePages pages_;
  const int thread_, half_, first_dim_, within_;
  const int64_t slot_stride_;
};

template <class T, Side kSide>
__device__ void load_side(const PrefillParams& p, const PrefillTile& tile, KeyRange range,
                          uint32_t shared) {
  if constexpr (T::kIsBf16 || (T::kE4m3 && kSide == Side::kK)) {
    KeyCopier<T, kSide>(p, tile, range).run(shared);
  } else if constexpr (T::kE4m3) {
    ValueTransposer<T>(p, tile, range).run(shared);
  } else {
    KeyWidener<T, kSide>(p, tile, range).run(shared);
  }
}

}  // namespace kv::cuda
