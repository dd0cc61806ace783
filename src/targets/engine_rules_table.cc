// What each engine does with each kind of directory. A row says how it is known; the tables say of
// which version. Messages are what to look for in a log, not whole lines.

#include "targets/engine_rules.h"

namespace kv {
namespace {

using K = DirectoryKind;
using O = LoadOutcome;
constexpr bool kFp8Auto = true, k16BitAuto = false;
constexpr std::string_view kFp8Flag = "--kv-cache-dtype fp8";
constexpr std::string_view kE4m3Flag = "--kv-cache-dtype fp8_e4m3";

constexpr EngineRule kVllmRows[] = {
    {K::kPlain, "", "", O::kDefaults, k16BitAuto, kFp8Flag, "", Basis::kExecuted},
    {K::kUndeclared, "0.32", "", O::kRefused, k16BitAuto, "",
     "There is no module or parameter named '...k_scale'", Basis::kExecuted},
    {K::kUndeclared, "", "0.32", O::kIgnored, k16BitAuto, kFp8Flag, "", Basis::kRead},
    {K::kCtTensorKvOnly, "", "", O::kUsed, kFp8Auto, "", "", Basis::kExecuted},
    {K::kCtTensorFineWeights, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kCtTensorCoarseWeights, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kCtHead, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kCtDynamic, "", "", O::kDefaults, kFp8Auto, "", "", Basis::kRead},
    {K::kCtUnsupported, "", "", O::kRefused, kFp8Auto, "", "NotImplementedError", Basis::kRead},
    {K::kCtOutputScale, "", "", O::kUnknown, kFp8Auto, "",
     "0.32 does not map k_proj.output_scale under this method", Basis::kRead},
    {K::kModelOpt, "", "", O::kUsed, kFp8Auto, "", "", Basis::kExecuted},
    {K::kModelOptCast, "", "", O::kDefaults, kFp8Auto, "",
     "Using KV cache scaling factor 1.0 for fp8_e4m3", Basis::kRead},
    {K::kModelOptKvOnly, "", "", O::kRefused, kFp8Auto, "", "Missing 'quant_algo'",
     Basis::kExecuted},
    {K::kModelOptAffine, "", "", O::kRefused, kFp8Auto, "",
     "AttributeError while loading k_proj.k_bias", Basis::kExecuted},
    {K::kModelOptFlatSide, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kModelOptProfileB, "", "", O::kUsed, kFp8Auto, "", "", Basis::kExecuted},
    {K::kFp8, "", "", O::kUsed, k16BitAuto, kFp8Flag, "", Basis::kRead},
    {K::kQuark, "", "", O::kUsed, k16BitAuto, kFp8Flag, "", Basis::kRead},
    {K::kMistral, "", "", O::kUsed, k16BitAuto, kFp8Flag, "", Basis::kRead},
    {K::kTensorRtLlm, "", "", O::kRefused, k16BitAuto, "", "no Hugging Face configuration",
     Basis::kInferred},
    {K::kSglangJson, "0.7", "", O::kIgnored, k16BitAuto, kFp8Flag,
     "--quantization-param-path is gone", Basis::kRead},
    {K::kEdgeOnnx, "", "", O::kRefused, k16BitAuto, "", "no Hugging Face configuration",
     Basis::kInferred},
    {K::kOther, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
};

// compressed-tensors scales are read since a change of 2026-08-19; the first release that is known
// to have it is 0.5.23.
constexpr std::string_view kNew = "0.5.23";

constexpr EngineRule kSglangRows[] = {
    {K::kPlain, "", "", O::kDefaults, k16BitAuto, kE4m3Flag, "scales default to 1.0", Basis::kRead},
    {K::kUndeclared, "", "", O::kIgnored, k16BitAuto, kE4m3Flag,
     "a warning that names are not found", Basis::kRead},
    {K::kCtTensorKvOnly, kNew, "", O::kUsed, kFp8Auto, "", "", Basis::kExecuted},
    {K::kCtTensorFineWeights, kNew, "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kCtTensorCoarseWeights, kNew, "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kCtOutputScale, kNew, "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kCtTensorKvOnly, "", kNew, O::kIgnored, k16BitAuto, kE4m3Flag,
     "a warning that names are not found", Basis::kRead},
    {K::kCtTensorFineWeights, "", kNew, O::kIgnored, k16BitAuto, kE4m3Flag,
     "a warning that names are not found", Basis::kRead},
    {K::kCtTensorCoarseWeights, "", kNew, O::kIgnored, k16BitAuto, kE4m3Flag,
     "a warning that names are not found", Basis::kRead},
    {K::kCtOutputScale, "", kNew, O::kIgnored, k16BitAuto, kE4m3Flag,
     "a warning that names are not found", Basis::kRead},
    {K::kCtHead, "", "", O::kIgnored, k16BitAuto, kE4m3Flag, "a warning that names are not found",
     Basis::kExecuted},
    {K::kCtDynamic, "", "", O::kIgnored, k16BitAuto, kE4m3Flag, "one warning about the scheme",
     Basis::kRead},
    {K::kCtUnsupported, "", "", O::kIgnored, k16BitAuto, kE4m3Flag, "one warning about the scheme",
     Basis::kRead},
    {K::kModelOpt, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kModelOptCast, "", "", O::kDefaults, kFp8Auto, "", "", Basis::kRead},
    {K::kModelOptKvOnly, "", "", O::kRefused, kFp8Auto, "",
     "Cannot find 'quant_algo' in the model's quantization config", Basis::kExecuted},
    {K::kModelOptAffine, "", "", O::kUnknown, kFp8Auto, "", "", Basis::kInferred},
    {K::kModelOptFlatSide, kNew, "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kModelOptFlatSide, "", kNew, O::kRefused, kFp8Auto, "", "KeyError", Basis::kInferred},
    {K::kModelOptProfileB, "", "", O::kUsed, kFp8Auto, "", "", Basis::kExecuted},
    {K::kFp8, "", "", O::kUsed, k16BitAuto, kE4m3Flag, "", Basis::kRead},
    {K::kQuark, "", "", O::kUsed, k16BitAuto, kE4m3Flag, "", Basis::kRead},
    {K::kMistral, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
    {K::kTensorRtLlm, "", "", O::kRefused, k16BitAuto, "", "no Hugging Face configuration",
     Basis::kInferred},
    {K::kSglangJson, "", "", O::kUsed, k16BitAuto,
     "--kv-cache-dtype fp8_e4m3 --quantization-param-path FILE",
     "any error in the file is logged and all scales become 1.0; some backends keep 1.0 or crash",
     Basis::kExecuted},
    {K::kEdgeOnnx, "", "", O::kRefused, k16BitAuto, "", "no Hugging Face configuration",
     Basis::kInferred},
    {K::kOther, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
};

constexpr std::string_view kTrtFlag = "KvCacheConfig(dtype=\"fp8\")";
constexpr std::string_view kNotApplied = "nothing: FP8 scales are parsed and not applied";

constexpr EngineRule kTensorRtLlmRows[] = {
    {K::kPlain, "", "", O::kDefaults, k16BitAuto, kTrtFlag, "", Basis::kRead},
    {K::kUndeclared, "", "", O::kIgnored, k16BitAuto, kTrtFlag, "", Basis::kRead},
    {K::kCtTensorKvOnly, "", "", O::kRefused, k16BitAuto, "", "empty config_groups", Basis::kRead},
    {K::kCtTensorFineWeights, "", "", O::kDefaults, kFp8Auto, "", kNotApplied, Basis::kRead},
    {K::kCtTensorCoarseWeights, "", "", O::kRefused, k16BitAuto, "",
     "per-tensor 8-bit weights are not supported", Basis::kRead},
    {K::kCtHead, "", "", O::kDefaults, kFp8Auto, "", kNotApplied, Basis::kRead},
    {K::kCtDynamic, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
    {K::kCtUnsupported, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
    {K::kCtOutputScale, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
    {K::kModelOpt, "", "", O::kDefaults, kFp8Auto, "", kNotApplied, Basis::kRead},
    {K::kModelOptCast, "", "", O::kDefaults, kFp8Auto, "", kNotApplied, Basis::kRead},
    {K::kModelOptKvOnly, "", "", O::kDefaults, kFp8Auto, "", kNotApplied, Basis::kRead},
    {K::kModelOptAffine, "", "", O::kUnknown, kFp8Auto, "", "", Basis::kInferred},
    {K::kModelOptFlatSide, "", "", O::kDefaults, kFp8Auto, "", kNotApplied, Basis::kRead},
    {K::kModelOptProfileB, "", "", O::kDefaults, kFp8Auto, "", kNotApplied, Basis::kInferred},
    {K::kFp8, "", "", O::kRefused, k16BitAuto, "", "static FP8 weights are taken for block scales",
     Basis::kRead},
    {K::kQuark, "", "", O::kRefused, k16BitAuto, "", "the method is not known", Basis::kRead},
    {K::kMistral, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
    {K::kTensorRtLlm, "", "", O::kRefused, k16BitAuto, "",
     "the TensorRT backend that read these is gone", Basis::kRead},
    {K::kSglangJson, "", "", O::kIgnored, k16BitAuto, kTrtFlag, "", Basis::kInferred},
    {K::kEdgeOnnx, "", "", O::kRefused, k16BitAuto, "", "", Basis::kInferred},
    {K::kOther, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
};

// The TensorRT backend read its own checkpoints and nothing else.
constexpr auto kTensorRtLlmLegacyRows = [] {
  std::array<EngineRule, static_cast<size_t>(K::kOther) + 1> rows{};
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {static_cast<K>(i),
               "",
               "",
               O::kRefused,
               k16BitAuto,
               "",
               "expects a checkpoint of its own scripts: config.json with architecture and "
               "quantization, rank*.safetensors",
               Basis::kRead};
  }
  rows[static_cast<size_t>(K::kTensorRtLlm)] = {K::kTensorRtLlm, "", "", O::kUsed,
                                                kFp8Auto,        "", "", Basis::kRead};
  return rows;
}();

constexpr std::string_view kNotParsed = "nothing: the block has no quant_algo";

constexpr EngineRule kEdgeLlmRows[] = {
    {K::kPlain, "", "", O::kIgnored, k16BitAuto, "", "", Basis::kRead},
    {K::kUndeclared, "", "", O::kIgnored, k16BitAuto, "", "", Basis::kRead},
    {K::kCtTensorKvOnly, "", "", O::kIgnored, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kCtTensorFineWeights, "", "", O::kRefused, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kCtTensorCoarseWeights, "", "", O::kRefused, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kCtHead, "", "", O::kIgnored, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kCtDynamic, "", "", O::kIgnored, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kCtUnsupported, "", "", O::kIgnored, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kCtOutputScale, "", "", O::kIgnored, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kModelOpt, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kModelOptCast, "", "", O::kDefaults, kFp8Auto, "", "", Basis::kRead},
    {K::kModelOptKvOnly, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kModelOptAffine, "", "", O::kUnknown, kFp8Auto, "", "", Basis::kInferred},
    {K::kModelOptFlatSide, "", "", O::kIgnored, k16BitAuto, "",
     "nothing: a flat hf_quant_config.json is read as unquantized", Basis::kRead},
    {K::kModelOptProfileB, "", "", O::kUsed, kFp8Auto, "", "", Basis::kInferred},
    {K::kFp8, "", "", O::kRefused, k16BitAuto, "", kNotParsed, Basis::kRead},
    {K::kQuark, "", "", O::kRefused, k16BitAuto, "", "the method is not known", Basis::kRead},
    {K::kMistral, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
    {K::kTensorRtLlm, "", "", O::kRefused, k16BitAuto, "", "", Basis::kInferred},
    {K::kSglangJson, "", "", O::kIgnored, k16BitAuto, "", "", Basis::kInferred},
    {K::kEdgeOnnx, "", "", O::kUsed, kFp8Auto, "", "", Basis::kRead},
    {K::kOther, "", "", O::kUnknown, k16BitAuto, "", "", Basis::kInferred},
};

constexpr auto kLlamaServerRows = [] {
  std::array<EngineRule, static_cast<size_t>(K::kOther) + 1> rows{};
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {static_cast<K>(i),
               "",
               "",
               O::kRefused,
               k16BitAuto,
               "",
               "llama-server loads GGUF files, which hold no scales of a cache",
               Basis::kRead};
  }
  return rows;
}();

}  // namespace

constinit const EngineRules kVllmRules{
    "vllm", "0.32.0", "vLLM 0.32.0: its Python code read, its CPU build executed", kVllmRows};
constinit const EngineRules kSglangRules{
    "sglang", "0.5.23", "SGLang 0.5.23, the released wheel: loader run on a CPU, kernels read",
    kSglangRows};
constinit const EngineRules kTensorRtLlmRules{
    "tensorrt-llm", "2026.8", "TensorRT-LLM main of 2026-08, PyTorch backend, single files read",
    kTensorRtLlmRows};
constinit const EngineRules kTensorRtLlmLegacyRules{
    "tensorrt-llm-legacy", "2025.12",
    "the legacy checkpoint format, as written by ModelOpt and TensorRT-LLM's converters, read",
    kTensorRtLlmLegacyRows};
constinit const EngineRules kEdgeLlmRules{
    "edge-llm", "0.10", "TensorRT Edge-LLM of about 0.8 to 0.10, single files read", kEdgeLlmRows};
constinit const EngineRules kLlamaServerRules{
    "llama-server", "2026.10", "llama.cpp's server, executed with GGUF files", kLlamaServerRows};

}  // namespace kv
