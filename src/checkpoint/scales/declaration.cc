#include "checkpoint/scales/declaration.h"

#include <nlohmann/json.hpp>

namespace kv {
namespace {

using Json = nlohmann::json;

// The block that vLLM and transformers look for, wherever a model has it.
std::optional<JsonFields> find_block(const JsonFields& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (config.has(key)) return config.object(key);
  }
  for (const char* part : {"text_config", "llm_config", "language_config", "thinker_config"}) {
    if (!config.has(part) || !config.find(part)->is_object()) continue;
    if (auto block = find_block(config.object(part))) return block;
  }
  return std::nullopt;
}

bool is_modelopt(const JsonFields& block, const std::string& method) {
  if (method.starts_with("modelopt")) return true;
  if (!method.empty()) return false;
  if (block.has("quant_algo") || block.has("kv_cache_quant_algo")) return true;
  return block.has("producer") && block.object("producer").text("name") == "modelopt";
}

void read_block(const JsonFields& block, KvDeclaration& out) {
  out.has_inline = true;
  out.method = block.text("quant_method").value_or("");
  out.source = block.file() + ": " + block.field("");
  if (!out.source.empty() && out.source.ends_with(".")) out.source.pop_back();
  if (out.method == "compressed-tensors") return read_compressed_tensors(block, out);
  if (is_modelopt(block, out.method)) return read_modelopt(block, out);
  if (out.method == "fp8") return read_fp8(block, out);
  if (out.method == "quark") return read_quark(block, out);
  out.family = ScaleFamily::kOther;
  out.weights = WeightScheme::kOther;
}

}  // namespace

std::string_view name(ScaleFamily family) {
  switch (family) {
    case ScaleFamily::kNone:
      return "none";
    case ScaleFamily::kCompressedTensors:
      return "compressed-tensors";
    case ScaleFamily::kModelOpt:
      return "ModelOpt";
    case ScaleFamily::kFp8:
      return "AutoFP8";
    case ScaleFamily::kQuark:
      return "Quark";
    case ScaleFamily::kTensorRtLlm:
      return "TensorRT-LLM";
    case ScaleFamily::kEdgeOnnx:
      return "TensorRT Edge-LLM (ONNX)";
    case ScaleFamily::kSglangJson:
      return "SGLang JSON";
    case ScaleFamily::kMistral:
      return "Mistral";
    case ScaleFamily::kScaleFile:
      return "kvscale scale file";
    case ScaleFamily::kOther:
      return "another method";
  }
  return "";
}

KvDeclaration read_declaration(const Json* config, const Json* hf_quant_config) {
  KvDeclaration out;
  if (config != nullptr) {
    const JsonFields fields(*config, "config.json");
    if (fields.has("quantization") && fields.has("architecture")) {
      read_tensorrt_llm(fields.object("quantization"), out);
      return out;
    }
    if (const auto block = find_block(fields)) read_block(*block, out);
  }
  if (hf_quant_config != nullptr) {
    read_modelopt_side_file(JsonFields(*hf_quant_config, "hf_quant_config.json"), out);
  }
  return out;
}

}  // namespace kv
