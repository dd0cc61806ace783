// quant_method "fp8": AutoFP8, old and new, and the weights of DeepSeek, which have no KV scales.

#include <nlohmann/json.hpp>

#include "checkpoint/scales/declaration.h"

namespace kv {

void read_fp8(const JsonFields& block, KvDeclaration& out) {
  out.family = ScaleFamily::kFp8;
  out.weights = block.has("weight_block_size") ? WeightScheme::kBlock : WeightScheme::kPerTensor;
  // A bare string here, "static"; engines do not read it and want the cache's dtype as a flag.
  const nlohmann::json* scheme = block.find("kv_cache_scheme");
  if (scheme == nullptr) return;
  if (!scheme->is_string()) block.fail("kv_cache_scheme", "a string");
  out.has_kv = true;
  out.is_fp8 = true;
  out.kv_algorithm = scheme->get<std::string>();
  out.k_post_rope = false;
}

}  // namespace kv
