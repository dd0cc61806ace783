#pragma once

#include <cstdint>
#include <string_view>

namespace kv::cpu {

/// Weights of a linear layer in the order in which the products read them: panels of 64 outputs, in
/// each [padded_in / 2][64] pairs of BF16 along the inputs. Inputs are padded to a multiple of 32
/// and outputs to 64, with zeros. A row of 64 pairs is four registers of AVX-512; 16 rows of 16
/// pairs are a tile of AMX. A panel is one stream of memory.
inline constexpr int64_t kPanelOutputs = 64;
inline int64_t padded_inputs(int64_t in) { return (in + 31) / 32 * 32; }
inline int64_t num_panels(int64_t out) { return (out + kPanelOutputs - 1) / kPanelOutputs; }
inline int64_t panel_values(int64_t in) { return kPanelOutputs * padded_inputs(in); }

/// One panel from `count` <= 64 rows [count][in] of the weights.
void pack_panel(const uint16_t* rows, int64_t count, int64_t in, uint16_t* panel);

struct GemmBf16 {
  int64_t rows = 0, in = 0, out = 0;  // in: a multiple of 32
  const uint16_t* x = nullptr;        // [rows][in] bf16
  const uint16_t* panels = nullptr;
  float* y = nullptr;  // [rows][out]
};

/// y = x W^T: products of BF16, sums in F32. An element's terms are added in the order of the
/// inputs, by one instruction sequence whatever the rows, outputs and threads: its bits depend on
/// its own row and column alone. Uses all threads.
void gemm_bf16(const GemmBf16& g);

/// How it multiplies now: "amx" (tiles), "bf16_dot" (vdpbf16ps), or "f32" (multiply-adds of widened
/// values). With amx and bf16_dot subnormal inputs and results count as 0.
std::string_view gemm_bf16_kernel();

/// Outputs [column, column + columns) of rows [first_row, first_row + rows); columns is 32 or 64
/// and divides column. The parts of gemm_bf16, by tiles.
struct GemmPart {
  int64_t first_row, rows, column, columns;
};
void gemm_part_amx(const GemmBf16& g, const GemmPart& part);

}  // namespace kv::cpu
