#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/layout.h"

namespace kv {

/// What is timed: one query a sequence, whole prompts, or new tokens into the cache.
enum class KernelOp : uint8_t { kDecode, kPrefill, kAppend };

/// One launch on random pages. `tokens`: in each sequence's cache; of an append: written.
struct KernelCase {
  KernelOp op = KernelOp::kDecode;
  int64_t batch = 1, tokens = 0;
  Format format = Format::kBf16;
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0, block_size = 0;
  PageOrder order = PageOrder::kNhd;
  bool fp8_math = false, counts = false;
  int64_t fresh_keys = 1;  // of a decode: as cuda::DecodeArgs
};

/// A bench as it is asked for, in the words of the command line.
struct KernelBenchOptions {
  KernelOp op = KernelOp::kDecode;
  std::string device = "cuda";
  std::vector<std::string> cells;    // "8x8192", of an append "8192"; none: the op's own
  std::vector<std::string> formats;  // "e4m3_per_tensor"; none: those that the op and the math take
  int64_t num_q_heads = 32, num_kv_heads = 8, head_dim = 128, block_size = 16;
  bool is_hnd = false, is_fp8_math = false, counts = false;
  int64_t fresh_keys = 1;

  /// Every format with every cell. Throws ValueError and UnsupportedError that name the option.
  std::vector<KernelCase> cases() const;
};

/// What ran and what it took; times per call, over replays of a graph of calls that rotate over
/// 256 MB or more.
struct KernelRow {
  KernelCase of;
  std::string kernel;
  double median_us = 0, fastest_us = 0, p90_us = 0;
  int64_t bytes = 0;  // decode: the visible pages; prefill: also q and out; append: K, V and cells
  double gbps = 0, share_of_read_limit = 0;
  double tflops = 0;  // of prefill: 4 num_q_heads head_dim n (n + 1) / 2
  /// Attention: differences from the reference in double, in units of its root mean square; of a
  /// decode, one KV head of one sequence; of a prefill, four of its queries.
  double rms_error = 0, worst_error = 0;
  int64_t differing_bytes = 0;  // of an append: of the first 64 tokens, from the reference's
};

/// The machine and its read limit, measured in this run over 4 GiB.
struct KernelMachine {
  std::string device;      // "NVIDIA H200"
  int driver_version = 0;  // 13000 = CUDA 13.0
  double read_limit_gbps = 0;
};

/// Throws UnsupportedError: a build without CUDA kernels, or a machine without the card.
KernelMachine prepare_kernel_bench();
KernelRow measure_kernel(const KernelCase& c, const KernelMachine& machine);

}  // namespace kv
