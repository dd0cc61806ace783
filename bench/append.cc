// kv_bench_append [--tokens 1,128,8192] [--formats ...] [--kv-heads 8] [--head-dim 128]
// [--block-size 16]
//   [--hnd] [--counts] [--as markdown|csv|json]
// Writing new tokens into paged caches on the card; bytes are K and V read plus cache bytes
// written.

#include <fmt/core.h>

#include <memory>
#include <numeric>
#include <random>

#include "bench/options.h"
#include "bench/pages.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "cuda/limits.h"
#include "cuda/store_kv.h"

namespace kv::bench {
namespace {

constexpr int64_t kRotatedBytes = 256 << 20;

/// Scattered slots of distinct tokens, as a batch of many sequences has them.
std::vector<int64_t> random_slots(int64_t tokens, int64_t slots) {
  std::vector<int64_t> all(static_cast<size_t>(slots));
  std::iota(all.begin(), all.end(), 0);
  std::mt19937 rng(3);
  std::shuffle(all.begin(), all.end(), rng);
  all.resize(static_cast<size_t>(tokens));
  return all;
}

void run_case(const Options& o, Format format, int64_t tokens, const Table& table) {
  const int64_t heads = o.number("kv-heads", 8), dim = o.number("head-dim", 128),
                block_size = o.number("block-size", 16);
  const PageOrder order = o.has("hnd") ? PageOrder::kHnd : PageOrder::kNhd;
  const PageLayout page = PageLayout::make(format, format, heads, dim, block_size, order);
  const int64_t in_bytes = tokens * heads * dim * 4,
                out_bytes = tokens * page.page_bytes / block_size;
  const int64_t sets = std::min<int64_t>(200, kRotatedBytes / (in_bytes + out_bytes) + 2);
  const int64_t blocks = sets * (tokens + block_size - 1) / block_size + 1;
  FilledPages pages(format, order, heads, dim, block_size, blocks);
  const cuda::DeviceBuffer k(sets * in_bytes / 2), v(sets * in_bytes / 2), slots(sets * tokens * 8),
      counters(sizeof(cuda::StoreCounters));
  cuda::fill_normal(k.as<uint16_t>(), k.bytes() / 2, 1, nullptr);
  cuda::fill_normal(v.as<uint16_t>(), v.bytes() / 2, 2, nullptr);
  cuda::fill_bytes(counters.data(), 0, counters.bytes(), nullptr);
  const auto host_slots = random_slots(sets * tokens, blocks * block_size);
  cuda::upload(slots.data(), host_slots.data(), slots.bytes(), nullptr);
  std::vector<Call> calls;
  std::string kernel;
  for (int64_t set = 0; set < sets; ++set) {
    cuda::StoreKvArgs a;
    a.k = k.as<const uint16_t>() + set * tokens * heads * dim;
    a.v = v.as<const uint16_t>() + set * tokens * heads * dim;
    a.k_token_stride = a.v_token_stride = heads * dim;
    a.k_head_stride = a.v_head_stride = dim;
    a.slot_mapping = slots.as<const int64_t>() + set * tokens;
    a.num_tokens = tokens;
    a.cache = pages.view();
    a.k_scale = a.v_scale = pages.scales();
    if (o.has("counts")) a.counters = counters.as<cuda::StoreCounters>();
    calls.push_back(
        [a, &kernel](cuda::StreamHandle stream) { kernel = cuda::store_kv(a, stream); });
  }
  const Timing time = time_calls(calls);
  table.row(
      {Table::number("{}", tokens), Table::word(std::string(name(format))),
       Table::number("{:.2f}", time.median_us), Table::number("{:.2f}", time.fastest_us),
       Table::number("{:.2f}", time.slowest_us), Table::number("{}", in_bytes + out_bytes),
       Table::number("{:.0f}", static_cast<double>(in_bytes + out_bytes) / time.median_us / 1e3),
       Table::word(kernel)});
}

int run(const Options& o) {
  const std::string as = o.text("as", "markdown");
  if (as == "markdown") fmt::print("{}\n\n", cuda::device_info().name);
  const Table table(
      as, {"tokens", "cache", "median_us", "fastest_us", "p90_us", "bytes", "gbps", "kernel"});
  for (const std::string& format : o.list("formats", "bf16,e4m3_per_tensor,e4m3_per_token_head")) {
    for (const std::string& tokens : o.list("tokens", "1,8,32,128,1024,8192,32768"))
      run_case(o, format_named(format), std::stoll(tokens), table);
  }
  return 0;
}

}  // namespace
}  // namespace kv::bench

int main(int argc, char** argv) { return kv::bench::run_program(kv::bench::run, argc, argv); }
