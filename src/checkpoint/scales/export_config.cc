#include "checkpoint/scales/export_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kvscale/error.h"
#include "kvscale/version.h"

namespace kv {
namespace {

using Json = nlohmann::json;

// The release whose fields are written; readers take any superset and compare none of it.
constexpr const char* kCompressedTensorsVersion = "0.18.0";

// Every field of compressed-tensors' QuantizationArgs, as that release writes them.
Json cache_scheme(bool per_head) {
  return {{"actorder", nullptr},
          {"block_structure", nullptr},
          {"dynamic", false},
          {"group_size", nullptr},
          {"num_bits", 8},
          {"observer", "static_minmax"},
          {"observer_kwargs", Json::object()},
          {"scale_dtype", nullptr},
          {"strategy", per_head ? "attn_head" : "tensor"},
          {"symmetric", true},
          {"type", "float"},
          {"zp_dtype", nullptr}};
}

Json compressed_tensors_block(bool per_head) {
  return {{"config_groups", Json::object()},           {"format", "dense"},
          {"global_compression_ratio", nullptr},       {"ignore", Json::array()},
          {"kv_cache_scheme", cache_scheme(per_head)}, {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},       {"sparsity_config", Json::object()},
          {"transform_config", Json::object()},        {"version", kCompressedTensorsVersion}};
}

const Json kFlatScheme = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};

Json producer() { return {{"name", "kvscale"}, {"version", kVersion}}; }

// quant_algo FP8 with every linear excluded: vLLM and SGLang ask for the algorithm, and find plain
// weights.
Json modelopt_block() {
  return {{"quant_method", "modelopt"},
          {"quant_algo", "FP8"},
          {"ignore", {"*"}},
          {"config_groups", Json::object()},
          {"kv_cache_scheme", kFlatScheme},
          {"producer", producer()}};
}

[[noreturn]] void refuse(const KvDeclaration& model, ExportForm form) {
  throw ValueError(fmt::format(
      "{}: the model is quantized by {}, whose checkpoints cannot carry scales in the form {}",
      model.source, name(model.family), name(form)));
}

}  // namespace

Json config_with_kv(Json config, const KvDeclaration& model, ExportForm form, bool per_head) {
  const bool is_plain = model.family == ScaleFamily::kNone;
  if (form == ExportForm::kCompressedTensors) {
    if (is_plain) {
      config["quantization_config"] = compressed_tensors_block(per_head);
    } else if (model.family == ScaleFamily::kCompressedTensors &&
               config.contains("quantization_config")) {
      config["quantization_config"]["kv_cache_scheme"] = cache_scheme(per_head);
    } else {
      refuse(model, form);
    }
    return config;
  }
  if (is_plain) {
    config["quantization_config"] = modelopt_block();
  } else if (model.family == ScaleFamily::kModelOpt) {
    if (config.contains("quantization_config")) {
      config["quantization_config"]["kv_cache_scheme"] = kFlatScheme;
    }
  } else if (model.family != ScaleFamily::kFp8) {  // that one reads scales without being told
    refuse(model, form);
  }
  return config;
}

Json side_file_with_kv(Json existing) {
  if (existing.is_object() && existing.contains("quantization")) {
    existing["quantization"]["kv_cache_quant_algo"] = "FP8";
    return existing;
  }
  return {{"producer", producer()},
          {"quantization",
           {{"quant_algo", nullptr},
            {"kv_cache_quant_algo", "FP8"},
            {"exclude_modules", Json::array()}}}};
}

}  // namespace kv
