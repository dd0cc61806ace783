#include "ops/attend_cpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "cpu/attend_rows.h"
#include "kvscale/error.h"
#include "numeric/bulk.h"
#include "numeric/simd.h"
#include "ops/cache_checks.h"

namespace kv {
namespace {

// Rows of one work item: enough to spread the widening of a tile of keys over many products (with
// 96 it takes 7 % of the time, with 192 half of that), few enough that queries, accumulators,
// scores and a tile stay in a second-level cache of 1 MiB (head_dim 256: 360 KB in BF16, 670 KB in
// F32).
constexpr int64_t kRowsPerItem = 192;

/// Some queries of one sequence under one KV head.
struct Item {
  const AttendParams* params;
  int64_t seq, kv_head;
  int64_t first_query, num_queries;  // within the sequence
  int64_t cost;
};

int64_t q_per_kv(const AttendParams& p) { return p.q.sizes[1] / p.cache.page.num_kv_heads; }

void add_items(const AttendParams& p, std::vector<Item>& items) {
  const int64_t step = std::max<int64_t>(1, kRowsPerItem / q_per_kv(p));
  for (size_t seq = 0; seq < p.seq_lens.size(); ++seq) {
    const int64_t queries = p.query_start[seq + 1] - p.query_start[seq];
    for (int64_t first = 0; first < queries; first += step) {
      const int64_t count = std::min(step, queries - first);
      const int64_t past = p.seq_lens[seq] - queries + first + count;
      const int64_t keys = p.window > 0 ? std::min(past, p.window + count) : past;
      for (int64_t head = 0; head < p.cache.page.num_kv_heads; ++head) {
        // Widening a tile of keys costs about as much as 8 rows of products.
        items.push_back(
            {&p, static_cast<int64_t>(seq), head, first, count, keys * (count * q_per_kv(p) + 8)});
      }
    }
  }
}

/// Whether the product with this side is one of two E4M3 operands.
bool reads_fp8(const AttendParams& p, Side side) {
  return p.math == Math::kFp8 && is_fp8(p.cache.page.side(side).format);
}

/// A query [n] in BF16 as it comes out of E4M3 under a power-of-two scale that puts its largest
/// magnitude into [128, 256). One that is not finite stays as it is: it must show in the result.
void round_query(uint16_t* q, int64_t n) {
  std::vector<float> wide(static_cast<size_t>(n));
  bf16_decode(q, wide.data(), wide.size());
  float largest = 0;
  for (const float x : wide) {
    if (!std::isfinite(x)) return;
    largest = std::max(largest, std::abs(x));
  }
  if (largest == 0) return;
  const float scale = std::ldexp(1.0f, std::max(std::ilogb(largest) - 7, -120));
  std::vector<uint8_t> codes(wide.size());
  e4m3_encode(wide.data(), codes.data(), codes.size(), scale, Rounding::kNearestEven);
  e4m3_decode(codes.data(), wide.data(), codes.size());
  for (float& x : wide) x *= scale;
  bf16_encode(wide.data(), q, wide.size());
}

/// The rows of one item, side by side.
class ItemRows {
 public:
  explicit ItemRows(const Item& item)
      : item_(item),
        p_(*item.params),
        dim_(p_.cache.page.head_dim),
        value_dim_(p_.cache.page.value_dim) {
    const int64_t group = q_per_kv(p_), queries = p_.query_start[seq() + 1] - p_.query_start[seq()];
    first_row_ = p_.query_start[seq()] + item.first_query;
    num_rows_ = item.num_queries * group;
    q_.resize(static_cast<size_t>(num_rows_ * dim_));
    out_.resize(static_cast<size_t>(num_rows_ * value_dim_));
    const int64_t first_position = p_.seq_lens[seq()] - queries + item.first_query;
    for (int64_t r = 0; r < num_rows_; ++r) {
      positions_.push_back(first_position + r / group);
      uint16_t* q = q_.data() + r * dim_;
      std::copy_n(p_.q.as<const uint16_t>() + offset(p_.q, r), dim_, q);
      if (reads_fp8(p_, Side::kK)) round_query(q, dim_);
    }
  }

  void run(cpu::AttendScratch& scratch) {
    const int64_t keys = positions_.back() + 1;
    const int64_t split = p_.keys_per_split > 0 ? p_.keys_per_split : keys;
    const int64_t first =
        p_.keys_per_split > 0 ? first_visible_key() / split * split : first_visible_key();
    std::vector<std::vector<float>> results;
    std::vector<cpu::RowsPart> parts;
    const std::vector<float> sinks = sinks_of_rows();
    for (int64_t begin = first; begin < keys; begin += split) {
      std::vector<float>& part =
          results.emplace_back(static_cast<size_t>(num_rows_ * (value_dim_ + 2)));
      float* largest = part.data() + num_rows_ * value_dim_;
      run_part(begin, std::min(begin + split, keys), part.data(), largest, largest + num_rows_,
               scratch);
    }
    for (const auto& part : results) {
      const float* largest = part.data() + num_rows_ * value_dim_;
      parts.push_back({part.data(), largest, largest + num_rows_});
    }
    // V of a latent is read through K's scale.
    const std::span<const float> scales = p_.cache.page.holds_latents ? p_.k_scale : p_.v_scale;
    const float value_scale = static_scale(p_.cache, Side::kV, scales, item_.kv_head);
    cpu::finish_rows(parts, num_rows_, value_dim_, value_scale,
                     sinks.empty() ? nullptr : sinks.data(), out_.data());
    write();
  }

 private:
  size_t seq() const { return static_cast<size_t>(item_.seq); }

  int64_t first_visible_key() const {
    static_assert(kWindowAlignment % cpu::kKeysPerTile == 0);
    return first_key_kept(p_.window, positions_.front());
  }

  /// The sink of each row's head, in powers of two; or none.
  std::vector<float> sinks_of_rows() const {
    constexpr float kLog2E = 1.442695041f;
    std::vector<float> out;
    const int64_t group = q_per_kv(p_);
    for (int64_t r = 0; r < num_rows_ && !p_.sinks.empty(); ++r) {
      out.push_back(kLog2E * p_.sinks[static_cast<size_t>(item_.kv_head * group + r % group)]);
    }
    return out;
  }

  int64_t offset(const TensorView& view, int64_t r) const {
    const int64_t group = q_per_kv(p_);
    return (first_row_ + r / group) * view.strides[0] +
           (item_.kv_head * group + r % group) * view.strides[1];
  }

  void run_part(int64_t begin, int64_t end, float* out, float* largest, float* sum,
                cpu::AttendScratch& scratch) {
    cpu::AttendRows rows;
    rows.cache = &p_.cache;
    rows.blocks = p_.block_table.as<const int32_t>() + item_.seq * p_.block_table.strides[0];
    rows.kv_head = item_.kv_head;
    rows.num_rows = num_rows_;
    rows.q = q_.data();
    rows.positions = positions_.data();
    rows.window = p_.window;
    rows.first_key = begin;
    rows.end_key = end;
    rows.score_scale =
        p_.softmax_scale * static_scale(p_.cache, Side::kK, p_.k_scale, item_.kv_head);
    rows.soft_cap = p_.soft_cap;
    rows.fp8_weights = reads_fp8(p_, Side::kV);
    rows.out = out;
    rows.largest = largest;
    rows.sum = sum;
    cpu::attend_rows(rows, scratch);
  }

  void write() const {
    for (int64_t r = 0; r < num_rows_; ++r) {
      const float* row = out_.data() + r * value_dim_;
      if (p_.out.dtype == DType::kF32) {
        std::copy_n(row, value_dim_, p_.out.as<float>() + offset(p_.out, r));
      } else {
        bf16_encode(row, p_.out.as<uint16_t>() + offset(p_.out, r),
                    static_cast<size_t>(value_dim_));
      }
    }
  }

  const Item& item_;
  const AttendParams& p_;
  int64_t dim_, value_dim_, first_row_ = 0, num_rows_ = 0;
  std::vector<uint16_t> q_;
  std::vector<float> out_;
  std::vector<int64_t> positions_;
};

std::string kernel_name(const AttendParams& p) {
  const PageLayout& page = p.cache.page;
  const bool planes = page.order == PageOrder::kCpu;
  const bool is_fp8_math = reads_fp8(p, Side::kK) || reads_fp8(p, Side::kV);
  return fmt::format("attend_cpu/{}/{},{}/{}/{}{}{}", active_simd_target(),
                     name(page.side(Side::kK).format), name(page.side(Side::kV).format),
                     page.holds_latents ? "latents"
                     : planes           ? "planes"
                                        : "strided",
                     cpu::attend_rows_kernel(page), is_fp8_math ? "/math=fp8" : "",
                     p.keys_per_split > 0 ? fmt::format("/split{}", p.keys_per_split) : "");
}

}  // namespace

std::vector<KernelUsed> attend_cpu(std::span<const AttendParams> params) {
  std::vector<Item> items;
  for (const AttendParams& p : params) {
    if (p.keys_per_split % cpu::kKeysPerTile != 0) {
      throw UnsupportedError(
          fmt::format("attend: keys_per_split: the cpu twin needs a multiple of {}, found {}",
                      cpu::kKeysPerTile, p.keys_per_split));
    }
    add_items(p, items);
  }
  // Longest first: the last items to start decide how long the call runs.
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.cost > b.cost; });
  std::exception_ptr failure;
#pragma omp parallel
  {
    static thread_local cpu::AttendScratch scratch;
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < items.size(); ++i) {
      try {
        ItemRows(items[i]).run(scratch);
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
  std::vector<KernelUsed> used;
  for (const AttendParams& p : params) used.push_back({kernel_name(p)});
  return used;
}

}  // namespace kv
