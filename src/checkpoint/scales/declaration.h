#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/json.h"

namespace kv {

/// Who laid out a checkpoint's scales.
enum class ScaleFamily : uint8_t {
  kNone,               // no quantization is declared
  kCompressedTensors,  // LLM Compressor, AutoRound, kvscale's profile A
  kModelOpt,           // ModelOpt's unified export and its Megatron export, kvscale's profile B
  kFp8,                // AutoFP8, old and new
  kQuark,
  kTensorRtLlm,  // legacy checkpoints
  kEdgeOnnx,
  kSglangJson,
  kMistral,
  kScaleFile,  // kvscale's own
  kOther       // a method that has no KV scales that any engine reads
};

/// "compressed-tensors", "ModelOpt", ...
std::string_view name(ScaleFamily family);

/// How weights are stored, as far as it decides who can load them.
enum class WeightScheme : uint8_t { kPlain, kPerTensor, kPerChannel, kBlock, kOther };

/// What a configuration declares about the cache.
struct KvDeclaration {
  ScaleFamily family = ScaleFamily::kNone;
  std::string source;    // "config.json: quantization_config"
  std::string method;    // quant_method as written
  std::string version;   // of the tool that wrote it
  std::string producer;  // ModelOpt's field; "kvscale" for our own
  WeightScheme weights = WeightScheme::kPlain;

  bool has_kv = false;       // a quantized cache is declared
  bool is_fp8 = false;       // 8-bit floats
  std::string kv_algorithm;  // as declared: "FP8", "NVFP4", "static", "8-bit float"
  std::string strategy;      // compressed-tensors: "tensor", "attn_head"
  bool is_dynamic = false;   // no scales are stored
  bool is_symmetric = true;
  std::string observer;        // compressed-tensors; empty = null or absent
  bool rotates_cache = false;  // transform_config names k_cache or q_attn
  bool has_groups = false;     // config_groups is there
  bool groups_empty = true;

  std::string quant_algo;      // ModelOpt, of the file that vLLM reads; empty = null or absent
  bool ignores_all = false;    // ModelOpt: every linear is excluded ("*")
  bool has_inline = false;     // config.json has a block
  bool has_side_file = false;  // hf_quant_config.json
  bool side_is_flat = false;
  std::string side_kv_algorithm;

  /// Whether K was measured after RoPE, where the files tell.
  std::optional<bool> k_post_rope;
};

/// The declaration of a directory: its config.json (null when there is none) and
/// hf_quant_config.json (likewise). Throws FormatError for values of a wrong type.
KvDeclaration read_declaration(const nlohmann::json* config, const nlohmann::json* hf_quant_config);

/// Parts of read_declaration(), one per format.
void read_compressed_tensors(const JsonFields& block, KvDeclaration& out);
void read_modelopt(const JsonFields& block, KvDeclaration& out);
void read_modelopt_side_file(const JsonFields& file, KvDeclaration& out);
void read_fp8(const JsonFields& block, KvDeclaration& out);
void read_quark(const JsonFields& block, KvDeclaration& out);
void read_tensorrt_llm(const JsonFields& quantization, KvDeclaration& out);

}  // namespace kv
