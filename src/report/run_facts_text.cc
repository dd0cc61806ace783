#include "report/run_facts_text.h"

#include <fmt/format.h>

#include "kvscale/error.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/text_table.h"

namespace kv {
namespace {

constexpr int kLeastWidth = 72;
// Enough of a SHA-256 to tell files apart by eye; the JSON has all of it.
constexpr size_t kShownHash = 16;

void add(FactList& list, std::string name, const std::string& value) {
  if (!value.empty()) list.emplace_back(std::move(name), printable(value));
}

std::string count(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(n), noun, n == 1 ? "" : "s");
}

std::string lines(const FactList& list, const TextStyle& style) {
  std::string out;
  for (const auto& [name, value] : list) out += paragraph(name + ": " + value, style, 2);
  return out;
}

}  // namespace

FactList model_list(const ModelFacts& model, const PromptFacts& prompts) {
  FactList list;
  add(list, "model", model.name);
  add(list, "shape",
      fmt::format("{}{}, {}, {}, head_dim {}",
                  model.architecture.empty() ? "" : model.architecture + ", ",
                  count(model.num_layers, "layer"), count(model.num_q_heads, "query head"),
                  count(model.num_kv_heads, "KV head"), model.head_dim));
  add(list, "weights SHA-256", model.sha256.substr(0, kShownHash));
  if (prompts.tokens > 0) {
    add(list, "text",
        fmt::format("{}, {}, {}", prompts.source, count(prompts.documents, "document"),
                    count(prompts.tokens, "token")));
  }
  add(list, "text SHA-256", prompts.sha256.substr(0, kShownHash));
  return list;
}

FactList run_list(const RunFacts& run) {
  FactList list;
  add(list, "command", run.command);
  add(list, "kvscale", run.version);
  add(list, "machine", run.machine);
  add(list, "kernels", fmt::format("{}", fmt::join(run.kernels, "; ")));
  for (const auto& [layout, source] : run.scale_sources) add(list, "scales " + layout, source);
  if (run.cache_bytes > 0) add(list, "cache allocated", format_bytes(run.cache_bytes));
  if (run.peak_memory_bytes > 0) add(list, "peak memory", format_bytes(run.peak_memory_bytes));
  if (run.seconds > 0) add(list, "time", fixed(run.seconds, 1) + " s");
  return list;
}

std::string model_text(const ModelFacts& model, const PromptFacts& prompts,
                       const TextStyle& style) {
  return lines(model_list(model, prompts), style);
}

std::string run_text(const RunFacts& run, const TextStyle& style) {
  return lines(run_list(run), style);
}

void check_style(const TextStyle& style) {
  if (style.width >= kLeastWidth) return;
  throw ValueError(fmt::format("report: width: expected at least {} columns, found {}", kLeastWidth,
                               style.width));
}

}  // namespace kv
