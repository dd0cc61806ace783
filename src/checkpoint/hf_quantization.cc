#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const JsonFields& fields, std::string_view key, const Json& found) {
  throw UnsupportedError(fmt::format(
      "{}: {}: found {}: quantized weights are not supported; accepted are safetensors weights in "
      "BF16, F16 or F32, with or without scales for the KV cache, and GGUF files",
      fields.file(), fields.field(key), shortened(found)));
}

// Groups of compressed-tensors and ModelOpt: those of a KV-only checkpoint have no weights.
void refuse_weight_groups(const JsonFields& quantization) {
  const Json* groups = quantization.find("config_groups");
  if (groups == nullptr) return;
  if (!groups->is_object()) quantization.fail("config_groups", "an object");
  for (const auto& [name, group] : groups->items()) {
    const JsonFields fields(group, quantization.file(),
                            quantization.field("config_groups") + "." + name + ".");
    if (const Json* weights = fields.find("weights")) refuse(fields, "weights", *weights);
  }
}

// An algorithm that leaves out every module ("*") leaves plain weights.
bool leaves_out_all(const JsonFields& quantization) {
  for (const char* key : {"ignore", "exclude_modules"}) {
    const Json* list = quantization.find(key);
    if (list != nullptr && list->is_array() && *list == Json::array({"*"})) return true;
  }
  return false;
}

// ModelOpt names what it did to the weights; null or absent when only the KV cache has scales.
void refuse_algorithm(const JsonFields& quantization) {
  const Json* algorithm = quantization.find("quant_algo");
  if (algorithm != nullptr && leaves_out_all(quantization)) return;
  if (algorithm != nullptr) refuse(quantization, "quant_algo", *algorithm);
}

void refuse_in(const JsonFields& quantization) {
  const std::string method = quantization.text("quant_method").value_or("");
  const bool may_be_kv_only =
      method == "compressed-tensors" || method.starts_with("modelopt") || method.empty();
  if (!may_be_kv_only) refuse(quantization, "quant_method", Json(method));
  refuse_algorithm(quantization);
  refuse_weight_groups(quantization);
}

}  // namespace

void refuse_quantized_weights(const JsonFields& config) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (config.has(key)) refuse_in(config.object(key));
  }
}

void refuse_quantized_weights_modelopt(const JsonFields& hf_quant_config) {
  if (hf_quant_config.has("quantization")) {
    refuse_algorithm(hf_quant_config.object("quantization"));
  } else {
    refuse_algorithm(hf_quant_config);
    refuse_weight_groups(hf_quant_config);
  }
}

}  // namespace kv
