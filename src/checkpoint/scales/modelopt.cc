// ModelOpt: the block in config.json and the side file hf_quant_config.json, flat and nested.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/scales/declaration.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr IntRange kBitsRange{1, 64};

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// "FP8" from the flat form's object, else the bare string that stands there.
std::string algorithm_of_scheme(const JsonFields& block) {
  const Json* scheme = block.find("kv_cache_scheme");
  if (scheme == nullptr) return "";
  if (scheme->is_string()) return upper(scheme->get<std::string>());
  const JsonFields fields = block.object("kv_cache_scheme");
  const int bits = fields.integer("num_bits", kBitsRange).value_or(0);
  const std::string type = fields.text("type").value_or("");
  if (bits == 8 && type == "float") return "FP8";
  if (bits == 4 && type == "float") return "NVFP4";
  return fmt::format("{}-bit {}", bits, type);
}

std::string kv_algorithm(const JsonFields& fields) {
  if (const auto named = fields.text("kv_cache_quant_algo")) return upper(*named);
  return algorithm_of_scheme(fields);
}

bool lists_everything(const JsonFields& fields, const char* key) {
  const Json* list = fields.find(key);
  return list != nullptr && list->is_array() && std::ranges::find(*list, Json("*")) != list->end();
}

WeightScheme weights_of(const std::string& algorithm, bool excludes_all) {
  if (algorithm.empty() || excludes_all) return WeightScheme::kPlain;
  if (algorithm == "FP8") return WeightScheme::kPerTensor;
  if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") return WeightScheme::kPerChannel;
  return algorithm == "FP8_PB_WO" ? WeightScheme::kBlock : WeightScheme::kOther;
}

void read_producer(const JsonFields& fields, KvDeclaration& out) {
  if (!fields.has("producer")) return;
  const JsonFields producer = fields.object("producer");
  out.producer = producer.text("name").value_or("");
  out.version = producer.text("version").value_or("");
}

void take(const JsonFields& fields, const std::string& algorithm, KvDeclaration& out) {
  out.quant_algo = upper(fields.text("quant_algo").value_or(""));
  out.ignores_all =
      lists_everything(fields, "ignore") || lists_everything(fields, "exclude_modules");
  out.weights = weights_of(out.quant_algo, out.ignores_all);
  out.kv_algorithm = algorithm;
  out.has_kv = !algorithm.empty();
  out.is_fp8 = algorithm == "FP8";
}

}  // namespace

void read_modelopt(const JsonFields& block, KvDeclaration& out) {
  out.family = ScaleFamily::kModelOpt;
  out.k_post_rope = true;
  read_producer(block, out);
  const bool is_nested = block.has("quantization");
  const JsonFields fields = is_nested ? block.object("quantization") : block;
  take(fields, kv_algorithm(fields), out);
}

void read_modelopt_side_file(const JsonFields& file, KvDeclaration& out) {
  out.has_side_file = true;
  out.side_is_flat = !file.has("quantization");
  const JsonFields fields = out.side_is_flat ? file : file.object("quantization");
  out.side_kv_algorithm = kv_algorithm(fields);
  if (out.has_inline) return;  // vLLM and SGLang then read that one; the side file is for others
  out.family = ScaleFamily::kModelOpt;
  out.method = "modelopt";
  out.source = "hf_quant_config.json";
  out.k_post_rope = true;
  read_producer(file, out);
  take(fields, out.side_kv_algorithm, out);
}

}  // namespace kv
