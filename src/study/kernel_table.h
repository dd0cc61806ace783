#pragma once

#include <string>
#include <string_view>

#include "study/kernel_bench.h"

namespace kv {

enum class TableStyle : uint8_t { kMarkdown, kCsv, kJson };

/// A bench's rows as text, in the columns of its op. Numbers stay numbers in JSON.
class KernelTable {
 public:
  KernelTable(KernelOp op, TableStyle style) : op_(op), style_(style) {}

  /// The lines before the first row; empty in JSON.
  std::string head() const;
  /// One line with its end; in JSON an object without one.
  std::string row(const KernelRow& row) const;

 private:
  KernelOp op_;
  TableStyle style_;
};

/// "NVIDIA H200, CUDA 13.0, read limit 4698 GB/s (4 GiB)".
std::string machine_text(const KernelMachine& machine);

}  // namespace kv
