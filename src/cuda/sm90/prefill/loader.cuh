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

/// 16 bytes without a register between; zeros where nothing is there.
__device__ inline void copy_async(uint32_t to, const uint8_t* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
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
      copy_async(column + swizzled<T::kRowBytes>(key, share_.piece % kRowPieces), from,
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

/// E4M3: each warp has tensor copies bring the codes of its own keys, 16 slots at a time, and a
/// lane widens a key of them (half a key at head_dim 256). As soon as a stage is widened the next
/// one's codes are on their way, without a register or an instruction between.
///
/// Rows lie head_dim bytes apart, so lanes take their units of 16 codes in an order that differs
/// from row to row: neither the reads nor the writes of 8 lanes meet on a bank.
///
/// A box of a tensor copy starts on 16 bytes. Cells with inline scales start on 8, and V's codes 4
/// past that, so rows come up to 12 bytes early, and the words that miss at their end come with the
/// scale that follows them, in one load of 16 bytes.
template <class T, Side kSide>
class KeyWidener {
  static constexpr int kWarpKeys = T::kKeys / 4, kWarpRuns = kWarpKeys / 16;
  static constexpr int kParts = 32 / kWarpKeys, kUnits = T::kHeadDim / 16 / kParts;
  static constexpr int kRunBytes = 16 * T::kHeadDim;

 public:
  __device__ KeyWidener(const PrefillParams& p, const PrefillTile& tile, KeyRange range,
                        uint32_t shared)
      : p_(p),
        range_(range),
        pages_(p, tile, range.end),
        warp_(static_cast<int>(threadIdx.x) / 32 % 4),
        lane_(static_cast<int>(threadIdx.x) % 32),
        key_(warp_ * kWarpKeys + lane_ % kWarpKeys),
        column_(tile.kv_head * p.head_words + side_base() / 4),
        head_(tile.kv_head * p.head_step),
        codes_of_head_(p.cache + tile.kv_head * p.head_stride + side_base()),
        shared_(shared),
        codes_(T::staging(shared, kSide) + warp_ * (kWarpRuns * kRunBytes)),
        arrived_(T::arrived(shared, kSide, warp_)) {}

  __device__ void run() {
    RunAt at = look_up(range_.begin);
    PrefillCursor to, units;
    uint32_t parity = 0;
    fetch(at, range_.begin);
    uint4 tail = load_tail(at, range_.begin);
    at = look_up(range_.begin + T::kKeys);
    for (int first = range_.begin; first < range_.end;) {
      const float factor = publish_unit(units, tail);
      barrier_wait(arrived_, parity);
      barrier_wait(T::empty(shared_, kSide, to.stage), to.parity ^ 1);
      widen(T::tile(shared_, kSide, to.stage), tail, f16_pair(factor, factor),
            first + key_ < range_.end);
      async_proxy_fence();
      barrier_arrive(T::full(shared_, kSide, to.stage));
      __syncwarp();  // every lane has read its codes
      first += T::kKeys;
      fetch(at, first);
      tail = load_tail(at, first);
      at = look_up(first + T::kKeys);
      parity ^= 1;
      to.advance(T::kStages);
    }
  }

 private:
  /// On lane r, where this warp's r-th 16 keys of a stage lie.
  __device__ RunAt look_up(int first) const {
    return pages_.look_up(first + warp_ * kWarpKeys, kWarpRuns);
  }

  __device__ void fetch(RunAt at, int first) const {
    if (first >= range_.end) return;  // no copy may be under way when the block ends
    const int run = lane_ < kWarpRuns ? lane_ : 0;
    const bool is_there = first + warp_ * kWarpKeys + 16 * run < range_.end;
    const int runs = __popc(__ballot_sync(~0u, is_there && lane_ < kWarpRuns));
    if (lane_ == 0) barrier_expect_bytes(arrived_, runs * kRunBytes);
    __syncwarp();
    if (lane_ >= kWarpRuns || !is_there) return;
    const uint32_t to = codes_ + run * kRunBytes;
    const int column = column_ & ~3, odd_column = (column_ + p_.pair_words) & ~3;
    if (p_.pair_words == 0) {
      tensor_copy(to, &p_.codes, column, at.slot, head_, at.block, arrived_);
    } else {  // even slots, then odd ones
      tensor_copy(to, &p_.codes, column, at.slot / 2, head_, at.block, arrived_);
      tensor_copy(to + kRunBytes / 2, &p_.codes, odd_column, at.slot / 2, head_, at.block,
                  arrived_);
    }
  }

  __device__ int side_base() const { return kSide == Side::kK ? 0 : p_.v_base; }

  /// How many words before its codes the row of this lane's key starts: even for K, odd for V.
  __device__ int words_early() const {
    if constexpr (!T::kInline) return 0;
    return (column_ + key_ % 2 * p_.pair_words) & 3;
  }

  /// Of this lane's key: the last words_early() words of codes, then the scale.
  __device__ uint4 load_tail(RunAt at, int first) const {
    if constexpr (!T::kInline) return {0, 0, 0, 0};
    const int run = lane_ % kWarpKeys / 16;
    const int64_t block = __shfl_sync(~0u, at.block, run), slot = __shfl_sync(~0u, at.slot, run);
    if (first + key_ >= range_.end) return {0, 0, 0, 0};
    const uint8_t* codes =
        codes_of_head_ + block * p_.block_stride + (slot + key_ % 16) * p_.slot_stride;
    return __ldg(reinterpret_cast<const uint4*>(codes + T::kHeadDim - 4 * words_early()));
  }

  /// The row of the staging area that holds the lane's key.
  __device__ int staged_row() const {
    const int slot = key_ % 16;
    return lane_ % kWarpKeys / 16 * 16 + (p_.pair_words == 0 ? slot : slot % 2 * 8 + slot / 2);
  }

  /// What a lane's i-th unit is: i, flipped by bits of its row such that of 8 rows all read
  /// different banks, and write them too once the tile's swizzle is added.
  __device__ int unit_flip() const {
    if constexpr (kUnits != 4 && kUnits != 8) return 0;
    const int two = lane_ & 2, four = lane_ >> 2 & 1, flip = two | (four ^ two / 2);
    return kUnits == 8 ? flip | (lane_ & 1) << 2 : flip;
  }

  /// 16 codes of a row that starts early: the ends of two neighbouring units.
  __device__ static uint4 in_order(uint4 a, uint4 b, bool is_late) {
    if constexpr (kSide == Side::kK) {  // 0 or 2 words
      return is_late ? uint4{a.z, a.w, b.x, b.y} : a;
    } else {  // 1 or 3
      return is_late ? uint4{a.w, b.x, b.y, b.z} : uint4{a.y, a.z, a.w, b.x};
    }
  }

  __device__ uint4 read_unit(uint32_t from, int at, int part, uint4 tail, bool is_late) const {
    const uint4 w = load_chunk(from + 16 * at);
    if constexpr (!T::kInline) return w;
    const bool is_last = part + at == T::kHeadDim / 16 - 1;
    const uint4 next = load_chunk(from + (is_last ? 0 : 16 * (at + 1)));
    return in_order(w, is_last ? tail : next, is_late);
  }

  __device__ static uint4 scaled(uint4 w, uint32_t factor) {
    if constexpr (!T::kInline) return w;
    return {f16_products(w.x, factor), f16_products(w.y, factor), f16_products(w.z, factor),
            f16_products(w.w, factor)};
  }

  __device__ void widen(uint32_t tile, uint4 tail, uint32_t factor, bool is_there) const {
    const int part = lane_ / kWarpKeys * kUnits, flip = unit_flip();
    const bool is_late = words_early() >= 2;
    const uint32_t from = codes_ + staged_row() * T::kHeadDim + part * 16;
    const uint32_t to = tile + key_ * 128, swizzle = static_cast<uint32_t>(key_ & 7) << 4;
#pragma unroll 1  // what it would compute once and keep, there are no registers for
    for (int i = 0; i < kUnits; i += 2) {
      uint4 codes[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) codes[j] = read_unit(from, (i + j) ^ flip, part, tail, is_late);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int unit = part + ((i + j) ^ flip);
        const uint4 w = is_there ? codes[j] : uint4{0, 0, 0, 0};
        const uint32_t column = to + unit / 4 * (T::kKeys * 128);
        const uint32_t chunk = static_cast<uint32_t>(unit % 4 * 32) ^ swizzle;
        store_chunk(column + chunk, scaled(widen_half(w.x, w.y), factor));
        store_chunk(column + (chunk ^ 16), scaled(widen_half(w.z, w.w), factor));
      }
    }
#pragma unroll
    for (int chunk = T::kHeadDim / 8; chunk < T::kPadded / 8; ++chunk) {
      store_chunk(to + chunk / 8 * (T::kKeys * 128) + ((chunk % 8 * 16) ^ swizzle), {0, 0, 0, 0});
    }
  }

  /// Inline scales enter the F16 values, relative to a power of two: a stage's own for keys, for
  /// values one above all that came so far, as in decode. V's leaves before the values, for the
  /// softmax, which rescales the result, comes first. Returns what this lane's codes are multiplied
  /// by.
  __device__ float publish_unit(PrefillCursor& to, uint4 tail) {
    if constexpr (!T::kInline) return 1;
    const bool is_late = words_early() >= 2;
    const float scale = __uint_as_float(kSide == Side::kK ? (is_late ? tail.z : tail.x)
                                                          : (is_late ? tail.w : tail.y));
    if constexpr (kSide == Side::kV) barrier_wait(T::unit_empty(shared_, to.stage), to.parity ^ 1);
    const float top = largest(to.stage, scale), old = unit_;
    if (kSide == Side::kK || top > unit_) {
      unit_ = fmaxf(T::kLowestUnit,
                    __uint_as_float((__float_as_uint(top) & 0x7f800000u) + 0x00800000u));
    }
    if (threadIdx.x % kLoaderThreads == 0) {
      store_float(T::unit(shared_, kSide, to.stage), unit_ / T::kUnitValue);
      store_float(T::unit(shared_, kSide, to.stage) + 4, old / unit_);
    }
    // K's place was read before the stage that the ring of keys has last got back.
    if constexpr (kSide == Side::kV) barrier_arrive(T::unit_full(shared_, to.stage));
    to.advance(T::kUnitStages);
    return scale * __uint_as_float(0x7f000000u - __float_as_uint(unit_)) * T::kUnitValue;
  }

  /// Of the loading warpgroup's scales.
  __device__ float largest(int stage, float top) const {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    const uint32_t at = T::tops(shared_, kSide, stage);
    if (lane_ == 0) store_float(at + 4 * warp_, top);
    asm volatile("bar.sync %0, %1;" ::"n"(kSide == Side::kK ? 5 : 6), "n"(kLoaderThreads)
                 : "memory");
    const uint4 tops = load_chunk(at);
    return fmaxf(fmaxf(__uint_as_float(tops.x), __uint_as_float(tops.y)),
                 fmaxf(__uint_as_float(tops.z), __uint_as_float(tops.w)));
  }

  __device__ static uint4 load_chunk(uint32_t at) {
    uint4 w;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "r"(at)
                 : "memory");
    return w;
  }
  __device__ static void store_float(uint32_t at, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
  }

  const PrefillParams& p_;
  const KeyRange range_;
  const StagePages pages_;
  const int warp_, lane_, key_;  // of the stage
  const int column_, head_;      // of the tensor map
  const uint8_t* codes_of_head_;
  const uint32_t shared_, codes_, arrived_;
  float unit_ = T::kLowestUnit;
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
        copy_async(mine + i * 16 * kUnits, side + key(i) * slot_stride_, is_there);
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
    KeyWidener<T, kSide>(p, tile, range, shared).run();
  }
}

}  // namespace kv::cuda
