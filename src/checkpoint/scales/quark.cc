// AMD Quark. Its exporter was not read; the format is known from the engines that read it.

#include <nlohmann/json.hpp>

#include "checkpoint/scales/declaration.h"

namespace kv {
namespace {

using Json = nlohmann::json;

// The output tensors of one of the patterns of kv_cache_quant_config ("*k_proj", "*v_proj").
void read_pattern(const JsonFields& pattern, KvDeclaration& out) {
  if (!pattern.has("output_tensors")) return;
  const JsonFields tensors = pattern.object("output_tensors");
  const std::string dtype = tensors.text("dtype").value_or("");
  out.has_kv = true;
  out.is_fp8 = dtype == "fp8_e4m3";
  out.kv_algorithm = dtype;
  out.strategy = tensors.text("qscheme").value_or("");
  out.is_dynamic = tensors.boolean("is_dynamic", false);
}

}  // namespace

void read_quark(const JsonFields& block, KvDeclaration& out) {
  out.family = ScaleFamily::kQuark;
  out.weights = WeightScheme::kOther;
  out.version = block.text("version").value_or("");
  out.k_post_rope = block.boolean("kv_cache_post_rope", false);
  if (!block.has("kv_cache_quant_config")) return;
  const JsonFields patterns = block.object("kv_cache_quant_config");
  for (const auto& [name, pattern] : block.find("kv_cache_quant_config")->items()) {
    if (pattern.is_object()) read_pattern(patterns.object(name), out);
  }
}

}  // namespace kv
