// kv_bench_attention [--cells 1x1024,8x8192] [--formats bf16,e4m3_per_tensor,...] [--q-heads 32]
//   [--kv-heads 8] [--head-dim 128] [--block-size 16] [--hnd] [--math bf16|fp8]
//   [--as markdown|csv|json]
// Decode over paged caches on the card: time, bytes, share of the read limit measured in this run,
// and the worst error of one sequence's KV head against the reference in double.

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "bench/options.h"
#include "bench/pages.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "cuda/decode.h"
#include "cuda/limits.h"
#include "kvscale/error.h"
#include "ops/attend.h"

namespace kv::bench {
namespace {

constexpr int64_t kRotatedBytes = 256 << 20;  // several times the L2

struct Case {
  int64_t batch, context, q_heads, kv_heads, head_dim, block_size;
  Format format;
  PageOrder order;
  Math math;
  int max_heads;  // of a block
};

struct Row {
  Case c;
  std::string kernel;
  int64_t bytes = 0;
  Timing time;
  double rms_error = 0;
};

/// One case's memory and calls: as many sets of pages as it takes to leave the L2 cold.
class DecodeBench {
 public:
  explicit DecodeBench(const Case& c) : c_(c) {
    const PageLayout page =
        PageLayout::make(c.format, c.format, c.kv_heads, c.head_dim, c.block_size, c.order);
    columns_ = (c.context + c.block_size - 1) / c.block_size;
    bytes_ = c.batch * c.context * page.page_bytes / c.block_size;
    sets_ = std::min<int64_t>(96, std::max<int64_t>(2, (kRotatedBytes + bytes_ - 1) / bytes_));
    const int64_t blocks = sets_ * c.batch * columns_;
    pages_ = std::make_unique<FilledPages>(c.format, c.order, c.kv_heads, c.head_dim, c.block_size,
                                           blocks);
    table_ = shuffled_blocks(blocks);
    upload_inputs();
    plan();
  }

  Row run() {
    Row row{c_, "", bytes_, {}, 0};
    std::vector<Call> calls;
    for (int64_t set = 0; set < sets_; ++set) {
      calls.push_back([this, set, &row](cuda::StreamHandle stream) {
        row.kernel = cuda::decode(args(set), *run_, stream);
      });
    }
    row.time = time_calls(calls);
    row.rms_error = rms_error();
    return row;
  }

  const CacheView& view() const { return pages_->view(); }

 private:
  int64_t row_values() const { return c_.q_heads * c_.head_dim; }

  void upload_inputs() {
    q_ = cuda::DeviceBuffer(c_.batch * row_values() * 2);
    out_ = cuda::DeviceBuffer(c_.batch * row_values() * 2);
    cuda::fill_normal(q_.as<uint16_t>(), c_.batch * row_values(), 99, nullptr);
    seq_lens_.assign(static_cast<size_t>(c_.batch), static_cast<int32_t>(c_.context));
    device_table_ = uploaded(table_);
  }

  static cuda::DeviceBuffer uploaded(const std::vector<int32_t>& host) {
    cuda::DeviceBuffer buffer(static_cast<int64_t>(host.size() * 4));
    cuda::upload(buffer.data(), host.data(), buffer.bytes(), nullptr);
    return buffer;
  }

  void plan() {
    const cuda::DecodeShape shape = cuda::decode_shape(
        view().page, view().block_stride, cuda::device_info().shared_bytes, c_.max_heads);
    cuda::DecodePlanOptions options;
    options.blocks = cuda::device_info().num_sms;
    std::vector<int32_t> rows(seq_lens_.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
    run_ = std::make_unique<cuda::DecodeRun>(cuda::plan_decode(shape, seq_lens_, rows, options),
                                             c_.q_heads / c_.kv_heads, c_.head_dim, nullptr);
    cuda::check(cudaDeviceSynchronize(), "plan");
  }

  cuda::DecodeArgs args(int64_t set) const {
    cuda::DecodeArgs a;
    a.q = q_.as<const uint16_t>();
    a.out = out_.data();
    a.q_row_stride = a.out_row_stride = row_values();
    a.q_head_stride = a.out_head_stride = c_.head_dim;
    a.cache = view();
    a.block_table = device_table_.as<const int32_t>() + set * c_.batch * columns_;
    a.table_stride = columns_;
    a.k_scale = a.v_scale = pages_->scales();
    a.q_per_kv = c_.q_heads / c_.kv_heads;
    a.softmax_scale = 1 / std::sqrt(static_cast<float>(c_.head_dim));
    a.fp8_math = c_.math == Math::kFp8;
    return a;
  }

  /// The last KV head of the last sequence of the last set that ran, against attend_ref.
  double rms_error() const {
    const int64_t group = c_.q_heads / c_.kv_heads, head = c_.kv_heads - 1, seq = c_.batch - 1;
    const int32_t* blocks = table_.data() + ((sets_ - 1) * c_.batch + seq) * columns_;
    std::vector<uint8_t> pages(static_cast<size_t>(columns_ * view().block_stride));
    for (int64_t i = 0; i < columns_; ++i) {
      cuda::download(pages.data() + i * view().block_stride, view().block(blocks[i]),
                     view().block_stride, nullptr);
    }
    const auto q = part(q_, seq, head), out = part(out_, seq, head);
    std::vector<int32_t> table(static_cast<size_t>(columns_));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::vector<float> ref(q.size());
    AttendParams p;
    p.q = TensorView::contiguous(q.data(), DType::kBF16, {1, group, c_.head_dim});
    p.out = TensorView::contiguous(ref.data(), DType::kF32, {1, group, c_.head_dim});
    p.cache = one_head(pages.data(), head);
    p.block_table = TensorView::contiguous(table.data(), DType::kI32, {1, columns_});
    const std::vector<int32_t> lens = {static_cast<int32_t>(c_.context)}, start = {0, 1};
    p.seq_lens = lens;
    p.query_start = start;
    p.k_scale = p.v_scale = std::span(pages_->host_scales()).first(1);
    p.softmax_scale = 1 / std::sqrt(static_cast<float>(c_.head_dim));
    attend_ref(p);
    double error = 0, size = 0;
    for (size_t i = 0; i < ref.size(); ++i) {
      uint32_t bits = uint32_t{out[i]} << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      error += std::pow(value - ref[i], 2);
      size += std::pow(ref[i], 2);
    }
    return std::sqrt(error / size);
  }

  CacheView one_head(uint8_t* pages, int64_t head) const {
    CacheView host = view();
    host.data = pages;
    host.num_blocks = columns_;
    host.page.num_kv_heads = 1;
    for (SideLayout& side : host.page.sides) {
      side.base += head * side.head_stride;
      side.scale_base += head * side.scale_head_stride;
    }
    return host;
  }

  std::vector<uint16_t> part(const cuda::DeviceBuffer& from, int64_t seq, int64_t head) const {
    const int64_t count = c_.q_heads / c_.kv_heads * c_.head_dim;
    std::vector<uint16_t> host(static_cast<size_t>(count));
    cuda::download(host.data(), from.as<const uint16_t>() + seq * row_values() + head * count,
                   count * 2, nullptr);
    return host;
  }

  Case c_;
  int64_t columns_ = 0, bytes_ = 0, sets_ = 1;
  std::unique_ptr<FilledPages> pages_;
  std::vector<int32_t> table_, seq_lens_;
  cuda::DeviceBuffer q_, out_, device_table_;
  std::unique_ptr<cuda::DecodeRun> run_;
};

void print_row(const Row& r, double limit, const Table& table) {
  const double gbps = static_cast<double>(r.bytes) / r.time.median_us / 1e3;
  table.row({Table::number("{}", r.c.batch), Table::number("{}", r.c.context),
             Table::word(std::string(name(r.c.format))), Table::number("{}", r.c.q_heads),
             Table::number("{}", r.c.head_dim), Table::number("{:.2f}", r.time.median_us),
             Table::number("{:.2f}", r.time.fastest_us), Table::number("{:.2f}", r.time.slowest_us),
             Table::number("{}", r.bytes), Table::number("{:.0f}", gbps),
             Table::number("{:.1f}", 100 * gbps / limit), Table::number("{:.1e}", r.rms_error),
             Table::word(r.kernel)});
}

int run(const Options& o) {
  const cuda::DeviceInfo& device = cuda::device_info();
  double limit = 0;
  {
    const cuda::DeviceBuffer large(int64_t{4} << 30);
    cuda::fill_normal(large.as<uint16_t>(), large.bytes() / 2, 1, nullptr);
    limit = read_limit_gbps(large.data(), large.bytes());
  }
  const std::string as = o.text("as", "markdown");
  if (as == "markdown") {
    fmt::print("{}, driver CUDA {}, read limit {:.0f} GB/s (4 GiB)\n\n", device.name,
               device.driver_version, limit);
  }
  const Table table(
      as, {"batch", "context", "cache", "q_heads", "head_dim", "median_us", "fastest_us", "p90_us",
           "bytes", "gbps", "percent_of_read_limit", "rms_error", "kernel"});
  for (const std::string& format : o.list("formats", "bf16,e4m3_per_tensor,e4m3_per_token_head")) {
    for (const std::string& cell :
         o.list("cells", "1x1024,1x8192,1x131072,8x8192,32x8192,128x8192")) {
      const size_t x = cell.find('x');
      Case c{std::stoll(cell.substr(0, x)),
             std::stoll(cell.substr(x + 1)),
             o.number("q-heads", 32),
             o.number("kv-heads", 8),
             o.number("head-dim", 128),
             o.number("block-size", 16),
             format_named(format),
             o.has("hnd") ? PageOrder::kHnd : PageOrder::kNhd,
             o.text("math", "bf16") == "fp8" ? Math::kFp8 : Math::kBf16,
             static_cast<int>(o.number("heads-per-block", 8))};
      print_row(DecodeBench(c).run(), limit, table);
    }
  }
  return 0;
}

}  // namespace
}  // namespace kv::bench

int main(int argc, char** argv) { return kv::bench::run_program(kv::bench::run, argc, argv); }
