// The quantization_config of compressed-tensors (LLM Compressor, AutoRound, kvscale's profile A).

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/scales/declaration.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr IntRange kBitsRange{1, 64};

WeightScheme scheme_of(const JsonFields& weights) {
  const std::string strategy = weights.text("strategy").value_or("tensor");
  if (strategy == "tensor") return WeightScheme::kPerTensor;
  if (strategy == "channel") return WeightScheme::kPerChannel;
  return strategy == "block" ? WeightScheme::kBlock : WeightScheme::kOther;
}

void read_groups(const JsonFields& block, KvDeclaration& out) {
  const Json* groups = block.find("config_groups");
  if (groups == nullptr) return;
  if (!groups->is_object()) block.fail("config_groups", "an object");
  out.has_groups = true;
  out.groups_empty = groups->empty();
  for (const auto& [name, group] : groups->items()) {
    const JsonFields fields(group, block.file(), block.field("config_groups") + "." + name + ".");
    if (fields.has("weights")) out.weights = scheme_of(fields.object("weights"));
  }
}

// Rotations applied online, between RoPE and the cache: what is cached is then rotated as well.
bool rotates_cache(const JsonFields& block) {
  const Json* transforms = block.find("transform_config");
  if (transforms == nullptr) return false;
  const std::string text = transforms->dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.find("\"k_cache\"") != std::string::npos ||
         text.find("\"q_attn\"") != std::string::npos;
}

bool is_dynamic(const JsonFields& scheme) {
  const Json* value = scheme.find("dynamic");
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (!value->is_string()) scheme.fail("dynamic", "true, false or \"local\"");
  return true;
}

}  // namespace

void read_compressed_tensors(const JsonFields& block, KvDeclaration& out) {
  out.family = ScaleFamily::kCompressedTensors;
  out.version = block.text("version").value_or("");
  read_groups(block, out);
  out.rotates_cache = rotates_cache(block);
  if (!block.has("kv_cache_scheme")) return;
  const JsonFields scheme = block.object("kv_cache_scheme");
  const int bits = scheme.integer("num_bits", kBitsRange).value_or(8);
  const std::string type = scheme.text("type").value_or("int");
  out.has_kv = true;
  out.is_fp8 = bits == 8 && type == "float";
  out.kv_algorithm = fmt::format("{}-bit {}", bits, type);
  out.strategy = scheme.text("strategy").value_or("");
  out.is_symmetric = scheme.boolean("symmetric", true);
  out.is_dynamic = is_dynamic(scheme);
  out.observer = scheme.text("observer").value_or("");
}

}  // namespace kv
