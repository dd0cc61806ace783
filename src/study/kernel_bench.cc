#include "study/kernel_bench.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <string_view>

#include "kvscale/error.h"
#include "text/edit_distance.h"

namespace kv {
namespace {

constexpr std::array kFormats = {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead,
                                 Format::kE4m3PerTokenHead};

Format format_named(const std::string& text) {
  std::array<std::string_view, kFormats.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = name(kFormats[i]);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return kFormats[i];
  }
  const std::string_view near = nearest_word(text, names);
  throw ValueError(fmt::format("bench: --formats: expected {}, {}, {} or {}, found \"{}\"{}",
                               names[0], names[1], names[2], names[3], text,
                               near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

std::vector<std::string> own_cells(KernelOp op) {
  if (op == KernelOp::kAppend) return {"1", "8", "32", "128", "1024", "8192", "32768"};
  if (op == KernelOp::kPrefill) return {"1x2048", "1x8192", "1x32768"};
  return {"1x1024", "1x8192", "1x131072", "8x8192", "32x8192", "128x8192"};
}

/// -1 when it is no number from 1 on.
int64_t count_in(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // 2^24: what no card holds, and small enough for the product of two.
  const bool is_count = error == std::errc{} && stop == text.data() + text.size() && value > 0 &&
                        value <= int64_t{1} << 24;
  return is_count ? value : -1;
}

void set_cell(KernelCase& c, std::string_view cell) {
  const size_t x = c.op == KernelOp::kAppend ? std::string_view::npos : cell.find('x');
  c.batch = x == std::string_view::npos ? 1 : count_in(cell.substr(0, x));
  c.tokens = count_in(x == std::string_view::npos ? cell : cell.substr(x + 1));
  if (c.batch > 0 && c.tokens > 0 && (c.op == KernelOp::kAppend || x != std::string_view::npos))
    return;
  throw ValueError(
      c.op == KernelOp::kAppend
          ? fmt::format("bench append: --tokens: expected 1 to 16777216, found \"{}\"", cell)
          : fmt::format("bench attention: --cells: expected batch x tokens as 8x8192, found \"{}\"",
                        cell));
}

void check_format(const KernelBenchOptions& options, Format format) {
  const bool is_static = is_fp8(format) && !has_inline_scales(format);
  if (!options.is_fp8_math || is_static) return;
  throw UnsupportedError(fmt::format(
      "bench attention: --math fp8: supported with e4m3_per_tensor and e4m3_per_head, needed {}",
      name(format)));
}

}  // namespace

std::vector<KernelCase> KernelBenchOptions::cases() const {
  if (device != "cuda")
    throw UnsupportedError(fmt::format("bench: --device: supported: cuda, needed {}", device));
  if (op != KernelOp::kAppend && num_q_heads % num_kv_heads != 0) {
    throw ValueError(
        fmt::format("bench attention: --q-heads: expected a multiple of --kv-heads = {}, found {}",
                    num_kv_heads, num_q_heads));
  }
  std::vector<std::string> names = formats;
  if (names.empty()) names = {"bf16", "e4m3_per_tensor", "e4m3_per_token_head"};
  if (formats.empty() && is_fp8_math) names = {"e4m3_per_tensor"};
  std::vector<KernelCase> out;
  for (const std::string& text : names) {
    KernelCase c;
    c.op = op;
    c.format = format_named(text);
    check_format(*this, c.format);
    c.num_q_heads = num_q_heads;
    c.num_kv_heads = num_kv_heads;
    c.head_dim = head_dim;
    c.block_size = block_size;
    c.fresh_keys = fresh_keys;
    c.order = is_hnd ? PageOrder::kHnd : PageOrder::kNhd;
    c.fp8_math = is_fp8_math;
    c.counts = counts;
    for (const std::string& cell : cells.empty() ? own_cells(op) : cells) {
      set_cell(c, cell);
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace kv
