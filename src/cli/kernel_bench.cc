#include "cli/kernel_bench.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "kvscale/error.h"
#include "study/kernel_table.h"

namespace kv::cli {

struct KernelBenchArgs {
  KernelBenchOptions options;
  std::string phase = "decode", math = "bf16";
  bool json = false, csv = false;
};

namespace {

void add_common(CLI::App* c, KernelBenchArgs& args) {
  KernelBenchOptions& o = args.options;
  c->add_option("--device", o.device, "what runs the kernels: cuda")->required();
  c->add_option("--formats", o.formats,
                "bf16, e4m3_per_tensor, e4m3_per_head, e4m3_per_token_head (default: all but "
                "e4m3_per_head)")
      ->delimiter(',')
      ->allow_extra_args(false);
  const CLI::Range sizes(int64_t{1}, int64_t{1} << 16, "from 1");
  c->add_option("--kv-heads", o.num_kv_heads, "KV heads")->capture_default_str()->check(sizes);
  c->add_option("--head-dim", o.head_dim, "values per head")->capture_default_str()->check(sizes);
  c->add_option("--block-size", o.block_size, "tokens per block")
      ->capture_default_str()
      ->check(sizes);
  c->add_flag("--hnd", o.is_hnd, "pages in the order head, slot (default: slot, head)");
  auto* json = c->add_flag("--json", args.json, "one JSON object on standard output");
  c->add_flag("--csv", args.csv, "comma-separated values (default: a Markdown table)")
      ->excludes(json);
}

CLI::App* add_attention(CLI::App& bench, KernelBenchArgs& args) {
  CLI::App* c = bench.add_subcommand(
      "attention", "attention over pages: time, bytes and error beside the card's read limit");
  add_common(c, args);
  c->add_option("--phase", args.phase, "decode (one query a sequence) or prefill (causal)")
      ->capture_default_str()
      ->check(CLI::IsMember({"decode", "prefill"}));
  c->add_option("--cells", args.options.cells,
                "sequences x tokens (default: 1x1024 to 128x8192; prefill: 1x2048,1x8192,1x32768)")
      ->delimiter(',')
      ->allow_extra_args(false);
  c->add_option("--q-heads", args.options.num_q_heads, "query heads")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16, "from 1"));
  c->add_option("--fresh-keys", args.options.fresh_keys,
                "of a decode: keys of each sequence that the launch before may have written; older "
                "pages are read while it runs (-1: all, none is)")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 16, "-1 or more"));
  c->add_option("--math", args.math,
                "bf16 (codes are widened), or fp8 (Q and P are rounded to E4M3 too)")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "fp8"}));
  return c;
}

CLI::App* add_append(CLI::App& bench, KernelBenchArgs& args) {
  CLI::App* c = bench.add_subcommand(
      "append", "writing new tokens into pages: time and bytes beside the card's read limit");
  args.options.op = KernelOp::kAppend;
  add_common(c, args);
  c->add_option("--tokens", args.options.cells, "tokens of a call (default: 1 to 32768)")
      ->delimiter(',')
      ->allow_extra_args(false);
  c->add_flag("--counts", args.options.counts,
              "count saturated, flushed and NaN values, as when calibrating");
  return c;
}

/// The heading of a table is part of it in Markdown; where programs read, it is for the eye.
void print_table(const std::vector<KernelCase>& cases, const KernelMachine& machine,
                 const KernelBenchArgs& args) {
  const KernelTable table(args.options.op, args.csv ? TableStyle::kCsv : TableStyle::kMarkdown);
  fmt::print(args.csv ? stderr : stdout, "{}\n\n", machine_text(machine));
  fmt::print("{}", table.head());
  for (const KernelCase& c : cases) {
    fmt::print("{}", table.row(measure_kernel(c, machine)));
    std::fflush(stdout);
  }
}

void print_json(const std::vector<KernelCase>& cases, const KernelMachine& machine, KernelOp op) {
  const KernelTable table(op, TableStyle::kJson);
  std::string rows;
  for (const KernelCase& c : cases)
    rows += (rows.empty() ? "\n  " : ",\n  ") + table.row(measure_kernel(c, machine));
  fmt::print(
      "{{\"device\": \"{}\", \"driver_version\": {}, \"read_limit_gbps\": {:.0f}, \"rows\": "
      "[{}]}}\n",
      machine.device, machine.driver_version, machine.read_limit_gbps, rows);
}

int run_kernel_bench(const KernelBenchArgs& args) {
  const std::vector<KernelCase> cases = args.options.cases();
  const KernelMachine machine = prepare_kernel_bench();
  if (args.json) {
    print_json(cases, machine, args.options.op);
  } else {
    print_table(cases, machine, args);
  }
  return kExitAccept;
}

}  // namespace

struct KernelBenchCommands::State {
  KernelBenchArgs attention_args, append_args;
  CLI::App *attention = nullptr, *append = nullptr;
};

KernelBenchCommands::KernelBenchCommands(CLI::App& bench) : state_(std::make_unique<State>()) {
  state_->attention = add_attention(bench, state_->attention_args);
  state_->append = add_append(bench, state_->append_args);
  // What is said before the op's name is about a model: none of it would be heard.
  for (CLI::Option* option : bench.get_options({})) {
    if (option->get_lnames() == std::vector<std::string>{"help"}) continue;
    state_->attention->excludes(option);
    state_->append->excludes(option);
  }
}

KernelBenchCommands::~KernelBenchCommands() = default;

std::optional<int> KernelBenchCommands::run() const {
  if (state_->append->parsed()) return run_kernel_bench(state_->append_args);
  if (!state_->attention->parsed()) return std::nullopt;
  KernelBenchArgs args = state_->attention_args;
  args.options.op = args.phase == "prefill" ? KernelOp::kPrefill : KernelOp::kDecode;
  args.options.is_fp8_math = args.math == "fp8";
  return run_kernel_bench(args);
}

}  // namespace kv::cli
