#include "report/json_values.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace kv {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_number(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

OrderedJson json_numbers(const std::vector<double>& values) {
  OrderedJson out = OrderedJson::array();
  for (const double value : values) out.push_back(json_number(value));
  return out;
}

OrderedJson json_of(const ModelFacts& model) {
  return {{"name", model.name},
          {"architecture", model.architecture},
          {"sha256", model.sha256},
          {"num_layers", model.num_layers},
          {"num_q_heads", model.num_q_heads},
          {"num_kv_heads", model.num_kv_heads},
          {"head_dim", model.head_dim}};
}

OrderedJson json_of(const PromptFacts& prompts) {
  return {{"source", prompts.source},
          {"sha256", prompts.sha256},
          {"documents", prompts.documents},
          {"tokens", prompts.tokens}};
}

OrderedJson json_of(const RunFacts& run) {
  return {{"kernels", run.kernels},
          {"scale_sources", run.scale_sources},
          {"cache_bytes", run.cache_bytes},
          {"peak_memory_bytes", run.peak_memory_bytes},
          {"seconds", json_number(run.seconds)},
          {"machine", run.machine},
          {"version", run.version},
          {"command", run.command}};
}

std::string json_text(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace kv
