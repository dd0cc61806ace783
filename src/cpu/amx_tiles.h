#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#ifdef KV_EMULATE_AMX
#include <bit>
#endif

namespace kv::cpu::amx {

/// Intel's tile registers (AMX), as far as products of BF16 need them: eight tiles of up to 16 rows
/// of 64 bytes. Written as assembly: GCC 12's _tile_loadconfig tells the optimiser that it reads 8
/// of the 64 bytes, and the rest of the configuration is dropped.
///
/// With KV_EMULATE_AMX the same functions compute in software: the kernels' arithmetic on addresses
/// is then tested on machines without tiles.
inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;
inline constexpr int64_t kTileValues = 32;  // BF16 values in a row of a tile

struct alignas(64) Config {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

/// A configuration whose tiles have the given rows, of 64 bytes each.
inline Config config(const std::array<int, 8>& rows) {
  Config out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out.rows[i] = static_cast<uint8_t>(rows[i]);
    out.bytes_per_row[i] = rows[i] > 0 ? kTileBytes : 0;
  }
  return out;
}

#ifndef KV_EMULATE_AMX

inline void configure(const Config& config) {
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}
inline void release() { asm volatile("tilerelease" : : : "memory"); }

template <int kTile>
inline void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

/// Rows of the tile from `from`, `stride` bytes apart.
template <int kTile>
inline void load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}

/// sums += a b: a has rows of 16 pairs, b a row of 16 pairs for each pair of a, sums rows of 16
/// F32.
template <int kSums, int kA, int kB>
inline void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

#else

struct Emulated {
  Config config;
  uint8_t tiles[8][kTileRows][kTileBytes] = {};
};
inline Emulated& emulated() {
  static thread_local Emulated state;
  return state;
}

inline void configure(const Config& config) {
  emulated() = {};
  emulated().config = config;
}
inline void release() { emulated() = {}; }

template <int kTile>
inline void zero() {
  std::memset(emulated().tiles[kTile], 0, sizeof emulated().tiles[kTile]);
}

template <int kTile>
inline void load(const void* from, int64_t stride) {
  zero<kTile>();
  for (int r = 0; r < emulated().config.rows[kTile]; ++r) {
    std::memcpy(emulated().tiles[kTile][r], static_cast<const uint8_t*>(from) + r * stride,
                kTileBytes);
  }
}

template <int kTile>
inline void store(void* to, int64_t stride) {
  for (int r = 0; r < emulated().config.rows[kTile]; ++r) {
    std::memcpy(static_cast<uint8_t*>(to) + r * stride, emulated().tiles[kTile][r], kTileBytes);
  }
}

template <int kSums, int kA, int kB>
inline void multiply() {
  const auto wide = [](const uint8_t* at) {
    uint16_t half;
    std::memcpy(&half, at, sizeof half);
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  };
  Emulated& e = emulated();
  for (int r = 0; r < e.config.rows[kSums]; ++r) {
    for (int c = 0; c < 16; ++c) {
      float sum;
      std::memcpy(&sum, &e.tiles[kSums][r][4 * c], sizeof sum);
      for (int k = 0; k < e.config.rows[kB]; ++k) {
        for (int half = 0; half < 2; ++half) {
          sum += wide(&e.tiles[kA][r][4 * k + 2 * half]) * wide(&e.tiles[kB][k][4 * c + 2 * half]);
        }
      }
      std::memcpy(&e.tiles[kSums][r][4 * c], &sum, sizeof sum);
    }
  }
}

#endif

}  // namespace kv::cpu::amx
