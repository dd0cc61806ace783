#include <algorithm>

#include "cpu/amx_tiles.h"
#include "cpu/gemm_bf16.h"

namespace kv::cpu {
namespace {

constexpr int64_t kPairsPerTile = 16;
constexpr int64_t kPanelRowBytes = kPanelOutputs * 4;
constexpr int64_t kColumnsPerTile = 16;

/// Where a block's results go: y itself, or a buffer where y ends before the block does.
class BlockOut {
 public:
  BlockOut(const GemmBf16& g, int64_t row, int64_t rows, int64_t column, int64_t columns)
      : y_(g.y + row * g.out + column), stride_(g.out), rows_(rows), columns_(g.out - column) {
    if (columns_ >= columns) return;
    to_ = buffer_;
    to_stride_ = columns;
  }

  float* at(int64_t row, int64_t column) { return to() + row * to_stride() + column; }
  int64_t stride_bytes() const { return to_stride() * 4; }
  void write() const {
    for (int64_t r = 0; to_ != nullptr && r < rows_; ++r)
      std::copy_n(buffer_ + r * to_stride_, columns_, y_ + r * stride_);
  }

 private:
  float* to() { return to_ != nullptr ? to_ : y_; }
  int64_t to_stride() const { return to_ != nullptr ? to_stride_ : stride_; }

  float* y_;
  int64_t stride_, rows_, columns_;
  float* to_ = nullptr;
  int64_t to_stride_ = 0;
  alignas(64) float buffer_[32 * kPanelOutputs];
};

/// Up to 32 rows, 32 columns: two tiles of rows meet two of columns. Tiles 0 to 3 are the sums, 4
/// and 5 rows, 6 and 7 columns.
void block_2x2(const GemmBf16& g, int64_t row, const uint16_t* panel, int64_t column,
               BlockOut& out) {
  using namespace amx;
  zero<0>(), zero<1>(), zero<2>(), zero<3>();
  const uint16_t* a = g.x + row * g.in;
  const uint16_t* b = panel + column % kPanelOutputs * 2;
  const int64_t row_bytes = g.in * 2;
  for (int64_t k = 0; k < g.in; k += kTileValues) {
    load<6>(b, kPanelRowBytes);
    load<4>(a + k, row_bytes);
    multiply<0, 4, 6>();
    load<5>(a + kTileRows * g.in + k, row_bytes);
    multiply<2, 5, 6>();
    load<7>(b + 2 * kColumnsPerTile, kPanelRowBytes);
    multiply<1, 4, 7>();
    multiply<3, 5, 7>();
    b += kPairsPerTile * kPanelOutputs * 2;
  }
  store<0>(out.at(0, 0), out.stride_bytes());
  store<1>(out.at(0, kColumnsPerTile), out.stride_bytes());
  store<2>(out.at(kTileRows, 0), out.stride_bytes());
  store<3>(out.at(kTileRows, kColumnsPerTile), out.stride_bytes());
}

/// Up to 16 rows, where reading the weights is what takes time: 32 or 64 columns at once, fetched
/// ahead. Tiles 0 to 3 are the sums, 4 the rows, 5 to 7 columns.
template <int kStrips>
void block_1xn(const GemmBf16& g, int64_t row, const uint16_t* panel, int64_t column,
               BlockOut& out) {
  using namespace amx;
  constexpr int64_t kAhead = 8192;  // bytes of the panel
  zero<0>(), zero<1>();
  if constexpr (kStrips == 4) zero<2>(), zero<3>();
  const uint16_t* a = g.x + row * g.in;
  const uint16_t* b = panel + column % kPanelOutputs * 2;
  for (int64_t k = 0; k < g.in; k += kTileValues) {
    const char* ahead = reinterpret_cast<const char*>(b) + kAhead;
    for (int64_t line = 0; line < kPairsPerTile * kStrips; ++line)
      __builtin_prefetch(ahead + line / kStrips * kPanelRowBytes + line % kStrips * kTileBytes);
    load<4>(a + k, g.in * 2);
    load<5>(b, kPanelRowBytes);
    load<6>(b + 2 * kColumnsPerTile, kPanelRowBytes);
    multiply<0, 4, 5>();
    multiply<1, 4, 6>();
    if constexpr (kStrips == 4) {
      load<7>(b + 4 * kColumnsPerTile, kPanelRowBytes);
      load<5>(b + 6 * kColumnsPerTile, kPanelRowBytes);
      multiply<2, 4, 7>();
      multiply<3, 4, 5>();
    }
    b += kPairsPerTile * kPanelOutputs * 2;
  }
  store<0>(out.at(0, 0), out.stride_bytes());
  store<1>(out.at(0, kColumnsPerTile), out.stride_bytes());
  if constexpr (kStrips == 4) {
    store<2>(out.at(0, 2 * kColumnsPerTile), out.stride_bytes());
    store<3>(out.at(0, 3 * kColumnsPerTile), out.stride_bytes());
  }
}

amx::Config config_for(int rows) {
  const int first = std::min(rows, amx::kTileRows), second = rows - first;
  if (second == 0) return amx::config({first, first, first, first, first, 16, 16, 16});
  return amx::config({first, first, second, second, first, second, 16, 16});
}

void rows_by_tiles(const GemmBf16& g, const GemmPart& part, const uint16_t* panel, int64_t row,
                   int64_t rows) {
  if (rows <= amx::kTileRows) {
    BlockOut out(g, row, rows, part.column, part.columns);
    part.columns == 64 ? block_1xn<4>(g, row, panel, part.column, out)
                       : block_1xn<2>(g, row, panel, part.column, out);
    return out.write();
  }
  for (int64_t column = part.column; column < std::min(part.column + part.columns, g.out);
       column += 2 * kColumnsPerTile) {
    BlockOut out(g, row, rows, column, 2 * kColumnsPerTile);
    block_2x2(g, row, panel, column, out);
    out.write();
  }
}

}  // namespace

void gemm_part_amx(const GemmBf16& g, const GemmPart& part) {
  constexpr int64_t kRows = 2 * amx::kTileRows;
  const uint16_t* panel = g.panels + part.column / kPanelOutputs * panel_values(g.in);
  int64_t configured = 0;
  for (int64_t at = 0; at < part.rows; at += kRows) {
    const int64_t rows = std::min(kRows, part.rows - at);
    if (rows != configured) amx::configure(config_for(static_cast<int>(rows)));
    configured = rows;
    rows_by_tiles(g, part, panel, part.first_row + at, rows);
  }
  amx::release();
}

}  // namespace kv::cpu
