#include "checkpoint/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kvscale/error.h"
#include "tensor/mapped_file.h"

namespace kv {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const JsonFields& config, std::string_view key, std::string_view expected,
                         std::string_view found) {
  throw UnsupportedError(fmt::format("{}: {}: expected {}, found {}", config.file(),
                                     config.field(key), expected, found));
}

// model_type decides; a list of architectures beside it must name the generating model.
std::string read_architecture(const JsonFields& config) {
  const std::string type = config.text("model_type").value_or("");
  if (type != "llama" && type != "qwen2") {
    refuse(config, "model_type", "\"llama\" or \"qwen2\"", fmt::format("{:?}", type));
  }
  const std::string expected = type == "llama" ? "LlamaForCausalLM" : "Qwen2ForCausalLM";
  const Json* architectures = config.find("architectures");
  if (architectures != nullptr && *architectures != Json::array({expected})) {
    refuse(config, "architectures", fmt::format("[\"{}\"]", expected), shortened(*architectures));
  }
  return type;
}

// Parts that other models of these families have and the forward pass here does not.
void refuse_other_parts(const JsonFields& config) {
  const std::string activation = config.text("hidden_act").value_or("silu");
  if (activation != "silu") refuse(config, "hidden_act", "\"silu\"", activation);
  for (const std::string_view key : {"mlp_bias", "use_sliding_window"}) {
    if (config.boolean(key, false)) refuse(config, key, "false", "true");
  }
  if (config.number("partial_rotary_factor").value_or(1.0) != 1.0) {
    refuse(config, "partial_rotary_factor", "1", "another number");
  }
  const Json* layer_types = config.find("layer_types");
  if (layer_types == nullptr) return;
  for (const Json& type : *layer_types) {
    if (type == "full_attention") continue;
    refuse(config, "layer_types", "\"full_attention\" for every layer", shortened(type));
  }
}

int read_head_dim(const JsonFields& config, const ModelSpec& spec) {
  const std::optional<int> head_dim = config.integer("head_dim", kHeadDimRange);
  if (!head_dim && spec.hidden_size % spec.num_q_heads != 0) {
    throw FormatError(fmt::format(
        "{}: head_dim: absent, and hidden_size = {} is no multiple of num_attention_heads = {}",
        config.file(), spec.hidden_size, spec.num_q_heads));
  }
  return head_dim.value_or(spec.hidden_size / spec.num_q_heads);
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {file.bytes().begin(), file.bytes().end()};
}

ModelSpec read_hf_config(const JsonFields& config) {
  ModelSpec spec;
  spec.architecture = read_architecture(config);
  refuse_other_parts(config);
  spec.name = config.text("_name_or_path").value_or("");
  spec.num_layers = config.required_integer("num_hidden_layers", kNumLayersRange);
  spec.hidden_size = config.required_integer("hidden_size", kSizeRange);
  spec.intermediate_size = config.required_integer("intermediate_size", kSizeRange);
  spec.num_q_heads = config.required_integer("num_attention_heads", kHeadsRange);
  spec.num_kv_heads = config.integer("num_key_value_heads", kHeadsRange).value_or(spec.num_q_heads);
  spec.head_dim = read_head_dim(config, spec);
  spec.vocab_size = config.required_integer("vocab_size", kVocabRange);
  spec.max_positions = config.required_integer("max_position_embeddings", kPositionsRange);
  spec.rms_norm_eps = config.number("rms_norm_eps").value_or(1e-6);  // default of both classes
  spec.rope = read_hf_rope(config, spec.max_positions);
  spec.tied_embeddings = config.boolean("tie_word_embeddings", false);
  const bool attention_bias = config.boolean("attention_bias", false);
  spec.has_qkv_bias = spec.architecture == "qwen2" || attention_bias;
  spec.has_o_bias = spec.architecture == "llama" && attention_bias;
  spec.bos_id = config.integer("bos_token_id", kTokenRange);
  spec.eos_ids = config.integers("eos_token_id", kTokenRange);
  return spec;
}

}  // namespace kv
