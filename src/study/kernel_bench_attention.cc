#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>

#include "cuda/decode.h"
#include "cuda/prefill.h"
#include "cuda/replay.h"
#include "ops/attend.h"
#include "study/kernel_pages.h"

namespace kv {
namespace {

/// One case's memory and calls: as many sets of pages as it takes to leave the L2 cold. A decode
/// has one query a sequence, a prefill all of them.
class AttentionBench {
 public:
  explicit AttentionBench(const KernelCase& c)
      : c_(c),
        columns_((c.tokens + c.block_size - 1) / c.block_size),
        queries_(c.op == KernelOp::kPrefill ? c.tokens : 1),
        page_bytes_(c.batch * c.tokens * page_of(c).page_bytes / c.block_size),
        sets_(std::clamp<int64_t>((kRotatedBytes + page_bytes_ - 1) / page_bytes_, 2, 96)),
        pages_(c, sets_ * c.batch * columns_),
        table_(shuffled<int32_t>(sets_ * c.batch * columns_)),
        device_table_(uploaded(table_)),
        q_(normal_values(c.batch * queries_ * row_values(), 99)),
        out_(c.batch * queries_ * row_values() * 2) {
    c_.op == KernelOp::kPrefill ? plan_prefill() : plan_decode();
  }

  KernelRow run() const {
    KernelRow row;
    row.of = c_;
    std::vector<cuda::Call> calls;
    for (int64_t set = 0; set < sets_; ++set) {
      calls.push_back(
          [this, set, &row](cuda::StreamHandle stream) { row.kernel = launch(set, stream); });
    }
    const cuda::ReplayTiming time = cuda::time_calls(calls, c_.op == KernelOp::kPrefill ? 7 : 15);
    row.median_us = time.median_us;
    row.fastest_us = time.fastest_us;
    row.p90_us = time.p90_us;
    row.bytes = page_bytes_;
    if (c_.op == KernelOp::kPrefill) {
      row.bytes += 2 * out_.bytes();
      const auto n = static_cast<double>(c_.tokens);
      row.tflops =
          2.0 * static_cast<double>(c_.batch * row_values()) * n * (n + 1) / row.median_us / 1e6;
    }
    set_errors(row);
    return row;
  }

 private:
  int64_t group() const { return c_.num_q_heads / c_.num_kv_heads; }
  int64_t row_values() const { return c_.num_q_heads * c_.head_dim; }
  float softmax_scale() const { return 1 / std::sqrt(static_cast<float>(c_.head_dim)); }

  void plan_decode() {
    const CacheView& view = pages_.view();
    const cuda::DecodeShape shape =
        cuda::decode_shape(view.page, view.block_stride, cuda::device_info().shared_bytes);
    cuda::DecodePlanOptions options;
    options.blocks = cuda::device_info().num_sms;
    const std::vector<int32_t> lens(static_cast<size_t>(c_.batch), static_cast<int32_t>(c_.tokens));
    std::vector<int32_t> rows(lens.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
    decode_ = std::make_unique<cuda::DecodeRun>(cuda::plan_decode(shape, lens, rows, options),
                                                group(), c_.head_dim, nullptr);
  }

  void plan_prefill() {
    std::vector<cuda::PrefillSequence> sequences;
    for (int64_t s = 0; s < c_.batch; ++s) {
      sequences.push_back({static_cast<int32_t>(s), static_cast<int32_t>(s * c_.tokens),
                           static_cast<int32_t>(c_.tokens), static_cast<int32_t>(c_.tokens)});
    }
    const auto tiles =
        cuda::plan_prefill(sequences, static_cast<int>(c_.num_kv_heads), static_cast<int>(group()));
    num_tiles_ = static_cast<int>(tiles.size());
    tiles_ = uploaded(tiles);
  }

  /// What the two phases' arguments have in common.
  template <class Args>
  Args args(int64_t set) const {
    Args a;
    a.q = q_.as<const uint16_t>();
    a.out = out_.data();
    a.q_row_stride = a.out_row_stride = row_values();
    a.q_head_stride = a.out_head_stride = c_.head_dim;
    a.cache = pages_.view();
    a.block_table = device_table_.as<const int32_t>() + set * c_.batch * columns_;
    a.table_stride = columns_;
    a.k_scale = a.v_scale = pages_.scales();
    a.q_per_kv = group();
    a.softmax_scale = softmax_scale();
    a.fp8_math = c_.fp8_math;
    return a;
  }

  std::string launch(int64_t set, cuda::StreamHandle stream) const {
    if (c_.op == KernelOp::kDecode) {
      auto step = args<cuda::DecodeArgs>(set);
      step.fresh_keys = static_cast<int>(c_.fresh_keys);
      return cuda::decode(step, *decode_, stream);
    }
    auto a = args<cuda::PrefillArgs>(set);
    a.tiles = tiles_.as<const cuda::PrefillTile>();
    a.num_tiles = num_tiles_;
    return cuda::prefill(a, stream);
  }

  /// The last KV head of the last sequence of the last set that ran; of a prefill, the queries a
  /// quarter, half, three quarters and all of the way.
  void set_errors(KernelRow& row) const {
    const int64_t seq = c_.batch - 1;
    const std::span<const int32_t> blocks(table_.data() + ((sets_ - 1) * c_.batch + seq) * columns_,
                                          static_cast<size_t>(columns_));
    const int64_t stride = pages_.view().block_stride;
    std::vector<uint8_t> pages(static_cast<size_t>(columns_ * stride));
    for (size_t i = 0; i < blocks.size(); ++i) {
      cuda::download(pages.data() + static_cast<int64_t>(i) * stride,
                     pages_.view().block(blocks[i]), stride, nullptr);
    }
    double error = 0, size = 0, worst = 0, count = 0;
    for (int64_t part = c_.op == KernelOp::kPrefill ? 1 : 4; part <= 4; ++part) {
      const int64_t seen = std::max<int64_t>(1, c_.tokens * part / 4);
      const int64_t query = queries_ == 1 ? seq : seq * queries_ + seen - 1;
      const auto out = head_values(out_, query);
      const auto ref = reference(pages.data(), query, seen);
      for (size_t i = 0; i < ref.size(); ++i) {
        const double off = std::fabs(double{out[i]} - ref[i]);
        error += off * off, size += double{ref[i]} * ref[i], worst = std::max(worst, off);
      }
      count += static_cast<double>(ref.size());
    }
    row.rms_error = std::sqrt(error / size);
    row.worst_error = worst / std::sqrt(size / count);
  }

  /// The last KV head's queries of one row, over the first `seen` tokens of `pages`.
  std::vector<float> reference(uint8_t* pages, int64_t query, int64_t seen) const {
    const auto bits = head_bits(q_, query);
    std::vector<int32_t> table(static_cast<size_t>(columns_));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::vector<float> ref(bits.size());
    AttendParams p;
    p.q = TensorView::contiguous(bits.data(), DType::kBF16, {1, group(), c_.head_dim});
    p.out = TensorView::contiguous(ref.data(), DType::kF32, {1, group(), c_.head_dim});
    p.cache = last_head(pages);
    p.block_table = TensorView::contiguous(table.data(), DType::kI32, {1, columns_});
    const std::vector<int32_t> lens = {static_cast<int32_t>(seen)}, start = {0, 1};
    p.seq_lens = lens;
    p.query_start = start;
    p.k_scale = p.v_scale = std::span(pages_.host_scales()).first(1);
    p.softmax_scale = softmax_scale();
    attend_ref(p);
    return ref;
  }

  CacheView last_head(uint8_t* pages) const {
    CacheView host = pages_.view();
    host.data = pages;
    host.num_blocks = columns_;
    host.page.num_kv_heads = 1;
    for (SideLayout& side : host.page.sides) {
      side.base += (c_.num_kv_heads - 1) * side.head_stride;
      side.scale_base += (c_.num_kv_heads - 1) * side.scale_head_stride;
    }
    return host;
  }

  std::vector<uint16_t> head_bits(const cuda::DeviceBuffer& from, int64_t row) const {
    const int64_t count = group() * c_.head_dim;
    std::vector<uint16_t> bits(static_cast<size_t>(count));
    cuda::download(bits.data(), from.as<const uint16_t>() + (row + 1) * row_values() - count,
                   count * 2, nullptr);
    return bits;
  }

  std::vector<float> head_values(const cuda::DeviceBuffer& from, int64_t row) const {
    const auto bits = head_bits(from, row);
    std::vector<float> values(bits.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      const uint32_t wide = uint32_t{bits[i]} << 16;
      std::memcpy(&values[i], &wide, 4);
    }
    return values;
  }

  KernelCase c_;
  int64_t columns_, queries_, page_bytes_, sets_;
  KernelPages pages_;
  std::vector<int32_t> table_;
  cuda::DeviceBuffer device_table_, q_, out_, tiles_;
  std::unique_ptr<cuda::DecodeRun> decode_;
  int num_tiles_ = 0;
};

}  // namespace

KernelRow measure_attention(const KernelCase& c) { return AttentionBench(c).run(); }

}  // namespace kv
