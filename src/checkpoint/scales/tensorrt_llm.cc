// Legacy TensorRT-LLM checkpoints: config.json with a "quantization" object, rankR.safetensors.

#include "checkpoint/scales/declaration.h"

namespace kv {

void read_tensorrt_llm(const JsonFields& quantization, KvDeclaration& out) {
  out.family = ScaleFamily::kTensorRtLlm;
  out.source = "config.json: quantization";
  out.quant_algo = quantization.text("quant_algo").value_or("");
  out.weights = out.quant_algo.empty() ? WeightScheme::kPlain : WeightScheme::kOther;
  out.kv_algorithm = quantization.text("kv_cache_quant_algo").value_or("");
  out.has_kv = !out.kv_algorithm.empty();
  out.is_fp8 = out.kv_algorithm == "FP8";
  out.k_post_rope = true;  // ModelOpt, which writes them
}

}  // namespace kv
