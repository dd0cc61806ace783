#include "ops/attend_cpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
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

// A row's result is combined from parts of so many keys, in prefill as in decode, whatever the
// threads: so the parts of a long sequence can be decoded by more threads than there are KV heads.
// 64 KB of codes with head_dim 64.
constexpr int64_t kKeysPerPart = 512;

// Items of so few rows are cut into their parts; larger ones are many, and keep their queries and
// sums in one place.
constexpr int64_t kRowsOfSplitItem = 64;

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
    split_ = p_.keys_per_split > 0 ? p_.keys_per_split : kKeysPerPart;
    first_key_ = first_visible_key() / split_ * split_;
    parts_.resize(static_cast<size_t>((positions_.back() - first_key_) / split_ + 1));
  }

  size_t num_parts() const { return parts_.size(); }

  /// Parts may run at the same time.
  void run_part(size_t part, cpu::AttendScratch& scratch) {
    std::vector<float>& out = parts_[part];
    out.resize(static_cast<size_t>(num_rows_ * (value_dim_ + 2)));
    float* largest = out.data() + num_rows_ * value_dim_;
    const int64_t begin = first_key_ + static_cast<int64_t>(part) * split_;
    attend_keys(begin, std::min(begin + split_, positions_.back() + 1), out.data(), largest,
                largest + num_rows_, scratch);
  }

  /// After all parts.
  void finish() {
    std::vector<cpu::RowsPart> parts;
    for (const auto& part : parts_) {
      const float* largest = part.data() + num_rows_ * value_dim_;
      parts.push_back({part.data(), largest, largest + num_rows_});
    }
    const std::vector<float> sinks = sinks_of_rows();
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

  void attend_keys(int64_t begin, int64_t end, float* out, float* largest, float* sum,
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

  const Item item_;
  const AttendParams& p_;
  int64_t dim_, value_dim_, first_row_ = 0, num_rows_ = 0;
  int64_t split_ = 0, first_key_ = 0;
  std::vector<std::vector<float>> parts_;  // values, largest scores and sums of each
  std::vector<uint16_t> q_;
  std::vector<float> out_;
  std::vector<int64_t> positions_;
};

/// fn(i, scratch) for i < n on all threads; rethrows what one of them threw.
template <class Fn>
void in_parallel(size_t n, const Fn& fn) {
  std::exception_ptr failure;
#pragma omp parallel if (n > 1)
  {
    static thread_local cpu::AttendScratch scratch;
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < n; ++i) {
      try {
        fn(i, scratch);
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void run_items(const std::vector<Item>& items) {
  struct Task {
    const Item* item;
    ItemRows* rows;  // of an item that is cut; or null
    size_t part;
  };
  std::vector<std::unique_ptr<ItemRows>> cut;
  std::vector<Task> tasks;
  for (const Item& item : items) {
    if (item.num_queries * q_per_kv(*item.params) > kRowsOfSplitItem) {
      tasks.push_back({&item, nullptr, 0});
      continue;
    }
    cut.push_back(std::make_unique<ItemRows>(item));
    for (size_t part = 0; part < cut.back()->num_parts(); ++part)
      tasks.push_back({&item, cut.back().get(), part});
  }
  in_parallel(tasks.size(), [&](size_t i, cpu::AttendScratch& scratch) {
    const Task& task = tasks[i];
    if (task.rows != nullptr) return task.rows->run_part(task.part, scratch);
    ItemRows rows(*task.item);
    for (size_t part = 0; part < rows.num_parts(); ++part) rows.run_part(part, scratch);
    rows.finish();
  });
  // A decode step's items are few and small: not worth another start of all threads.
  if (cut.size() < 64) {
    for (const auto& rows : cut) rows->finish();
    return;
  }
  in_parallel(cut.size(), [&](size_t i, cpu::AttendScratch&) { cut[i]->finish(); });
}

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
  run_items(items);
  std::vector<KernelUsed> used;
  for (const AttendParams& p : params) used.push_back({kernel_name(p)});
  return used;
}

}  // namespace kv
