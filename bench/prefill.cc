// kv_bench_prefill [--lengths 2048,8192,32768] [--formats ...] [--q-heads 32] [--kv-heads 8]
// [--head-dim 128]
//   [--block-size 16] [--hnd] [--math bf16|fp8] [--as markdown|csv|json]
// Causal prefill of one sequence over a paged cache on the card: TFLOP/s of 4 hq d n (n + 1) / 2.

#include <fmt/core.h>

#include <cmath>

#include "bench/options.h"
#include "bench/pages.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "cuda/limits.h"
#include "cuda/prefill.h"

namespace kv::bench {
namespace {

void run_case(const Options& o, Format format, int64_t length, const Table& table) {
  const int64_t q_heads = o.number("q-heads", 32), kv_heads = o.number("kv-heads", 8),
                dim = o.number("head-dim", 128), block_size = o.number("block-size", 16);
  const int64_t columns = (length + block_size - 1) / block_size, row = q_heads * dim;
  const FilledPages pages(format, o.has("hnd") ? PageOrder::kHnd : PageOrder::kNhd, kv_heads, dim,
                          block_size, columns);
  const cuda::DeviceBuffer q(length * row * 2), out(length * row * 2), block_table(columns * 4);
  cuda::fill_normal(q.as<uint16_t>(), length * row, 99, nullptr);
  const auto blocks = shuffled_blocks(columns);
  cuda::upload(block_table.data(), blocks.data(), block_table.bytes(), nullptr);
  const std::vector<cuda::PrefillSequence> sequences = {
      {0, 0, static_cast<int32_t>(length), static_cast<int32_t>(length)}};
  const auto tiles = cuda::plan_prefill(sequences, static_cast<int>(kv_heads),
                                        static_cast<int>(q_heads / kv_heads));
  const cuda::DeviceBuffer device_tiles(static_cast<int64_t>(tiles.size() * sizeof tiles[0]));
  cuda::upload(device_tiles.data(), tiles.data(), device_tiles.bytes(), nullptr);
  cuda::PrefillArgs a;
  a.q = q.as<const uint16_t>();
  a.out = out.data();
  a.q_row_stride = a.out_row_stride = row;
  a.q_head_stride = a.out_head_stride = dim;
  a.cache = pages.view();
  a.block_table = block_table.as<const int32_t>();
  a.table_stride = columns;
  a.k_scale = a.v_scale = pages.scales();
  a.q_per_kv = q_heads / kv_heads;
  a.softmax_scale = 1 / std::sqrt(static_cast<float>(dim));
  a.fp8_math = o.text("math", "bf16") == "fp8";
  a.tiles = device_tiles.as<const cuda::PrefillTile>();
  a.num_tiles = static_cast<int>(tiles.size());
  std::string kernel;
  const Call call = [&](cuda::StreamHandle stream) { kernel = cuda::prefill(a, stream); };
  const Timing time = time_calls({call, call}, 7);
  const double n = static_cast<double>(length);
  const double flops = 4.0 * static_cast<double>(row) * n * (n + 1) / 2;
  table.row({Table::number("{}", length), Table::word(std::string(name(format))),
             Table::number("{:.1f}", time.median_us), Table::number("{:.1f}", time.fastest_us),
             Table::number("{:.1f}", time.slowest_us),
             Table::number("{:.0f}", flops / time.median_us / 1e6), Table::word(kernel)});
}

int run(const Options& o) {
  const std::string as = o.text("as", "markdown");
  if (as == "markdown") fmt::print("{}\n\n", cuda::device_info().name);
  const Table table(as,
                    {"tokens", "cache", "median_us", "fastest_us", "p90_us", "tflops", "kernel"});
  for (const std::string& format : o.list("formats", "bf16,e4m3_per_tensor,e4m3_per_token_head")) {
    for (const std::string& length : o.list("lengths", "2048,8192,32768"))
      run_case(o, format_named(format), std::stoll(length), table);
  }
  return 0;
}

}  // namespace
}  // namespace kv::bench

int main(int argc, char** argv) { return kv::bench::run_program(kv::bench::run, argc, argv); }
