#include "study/kernel_table.h"

#include <fmt/core.h>

#include <vector>

namespace kv {
namespace {

struct Cell {
  std::string_view column;
  std::string text;
  bool is_word = false;
};

void add_shape(std::vector<Cell>& cells, const KernelCase& c) {
  const auto number = [](int64_t n) { return fmt::format("{}", n); };
  if (c.op != KernelOp::kAppend) cells.push_back({"batch", number(c.batch)});
  cells.push_back({c.op == KernelOp::kDecode ? "context" : "tokens", number(c.tokens)});
  cells.push_back({"cache", std::string(name(c.format)), true});
  if (c.op != KernelOp::kAppend) cells.push_back({"q_heads", number(c.num_q_heads)});
  cells.push_back({"kv_heads", number(c.num_kv_heads)});
  cells.push_back({"head_dim", number(c.head_dim)});
}

std::vector<Cell> cells_of(const KernelRow& row) {
  std::vector<Cell> cells;
  add_shape(cells, row.of);
  cells.push_back({"median_us", fmt::format("{:.2f}", row.median_us)});
  cells.push_back({"fastest_us", fmt::format("{:.2f}", row.fastest_us)});
  cells.push_back({"p90_us", fmt::format("{:.2f}", row.p90_us)});
  cells.push_back({"bytes", fmt::format("{}", row.bytes)});
  cells.push_back({"gbps", fmt::format("{:.0f}", row.gbps)});
  cells.push_back({"percent_of_read_limit", fmt::format("{:.1f}", 100 * row.share_of_read_limit)});
  if (row.of.op == KernelOp::kPrefill)
    cells.push_back({"tflops", fmt::format("{:.0f}", row.tflops)});
  if (row.of.op == KernelOp::kAppend) {
    cells.push_back({"differing_bytes", fmt::format("{}", row.differing_bytes)});
  } else {
    cells.push_back({"rms_error", fmt::format("{:.1e}", row.rms_error)});
    cells.push_back({"worst_error", fmt::format("{:.1e}", row.worst_error)});
  }
  cells.push_back({"kernel", row.kernel, true});
  return cells;
}

/// Kernel names have commas, which CSV must quote; no name has quotes or bars.
std::string line(const std::vector<std::string_view>& words, TableStyle style) {
  std::string out = style == TableStyle::kMarkdown ? "|" : "";
  for (size_t i = 0; i < words.size(); ++i) {
    if (style == TableStyle::kMarkdown) {
      out += fmt::format(" {} |", words[i]);
    } else {
      const char* quote = words[i].find(',') == std::string_view::npos ? "" : "\"";
      out += fmt::format("{}{}{}{}", i == 0 ? "" : ",", quote, words[i], quote);
    }
  }
  return out + "\n";
}

std::string json_object(const std::vector<Cell>& cells) {
  std::string out;
  for (const Cell& cell : cells) {
    const char* quote = cell.is_word ? "\"" : "";
    out += fmt::format("{}\"{}\": {}{}{}", out.empty() ? "" : ", ", cell.column, quote, cell.text,
                       quote);
  }
  return "{" + out + "}";
}

}  // namespace

std::string KernelTable::head() const {
  if (style_ == TableStyle::kJson) return "";
  KernelRow row;
  row.of.op = op_;
  std::vector<std::string_view> names;
  for (const Cell& cell : cells_of(row)) names.push_back(cell.column);
  const std::string first = line(names, style_);
  if (style_ == TableStyle::kCsv) return first;
  return first + line(std::vector<std::string_view>(names.size(), "---"), style_);
}

std::string KernelTable::row(const KernelRow& row) const {
  const std::vector<Cell> cells = cells_of(row);
  if (style_ == TableStyle::kJson) return json_object(cells);
  std::vector<std::string_view> words;
  for (const Cell& cell : cells) words.push_back(cell.text);
  return line(words, style_);
}

std::string machine_text(const KernelMachine& machine) {
  return fmt::format("{}, CUDA {}.{}, read limit {:.0f} GB/s (4 GiB)", machine.device,
                     machine.driver_version / 1000, machine.driver_version % 1000 / 10,
                     machine.read_limit_gbps);
}

}  // namespace kv
