#include "checkpoint/hf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/family.h"
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
const Family& read_family(const JsonFields& config) {
  const std::string type = config.text("model_type").value_or("");
  const Family* family = find_family(type);
  if (family == nullptr) {
    refuse(config, "model_type", "one of " + known_hf_types(), fmt::format("{:?}", type));
  }
  const Json* architectures = config.find("architectures");
  if (architectures != nullptr && *architectures != Json::array({family->hf_class})) {
    refuse(config, "architectures", fmt::format("[\"{}\"]", family->hf_class),
           shortened(*architectures));
  }
  return *family;
}

void refuse_unless_absent(const JsonFields& config, std::string_view key) {
  if (config.has(key)) refuse(config, key, "null or no such key", shortened(*config.find(key)));
}

// Parts that other models of these families have and the forward pass here does not.
void refuse_other_parts(const JsonFields& config, const Family& family) {
  const std::string_view key = family.is_gemma ? "hidden_activation" : "hidden_act";
  const std::string_view known =
      family.activation == Activation::kGeluTanh ? "gelu_pytorch_tanh" : "silu";
  const std::string activation = config.text(key).value_or(std::string(known));
  if (activation != known) refuse(config, key, fmt::format("{:?}", known), activation);
  for (const std::string_view flag : {"mlp_bias", "use_bidirectional_attention"}) {
    if (config.boolean(flag, false)) refuse(config, flag, "false", "true");
  }
  if (!family.may_have_biases && !family.has_qkv_bias && config.boolean("attention_bias", false)) {
    refuse(config, "attention_bias", "false", "true");
  }
  const bool may_use_window = family.windows == WindowRule::kFromMaxLayer;
  if (!may_use_window && config.boolean("use_sliding_window", false)) {
    refuse(config, "use_sliding_window", "false", "true");
  }
  if (family.attention_cap == 0.0) refuse_unless_absent(config, "attn_logit_softcapping");
  if (!family.is_gemma) refuse_unless_absent(config, "final_logit_softcapping");
  if (config.number("partial_rotary_factor").value_or(1.0) != 1.0) {
    refuse(config, "partial_rotary_factor", "1", "another number");
  }
}

// A number whose absence means the class's default and whose null means none.
double number_unless_null(const JsonFields& config, std::string_view key, double absent) {
  return config.number(key).value_or(config.is_null(key) ? 0.0 : absent);
}

int read_window(const JsonFields& config, const Family& family) {
  if (family.windows == WindowRule::kNone || config.is_null("sliding_window")) return 0;
  if (family.windows == WindowRule::kFromMaxLayer && !config.boolean("use_sliding_window", false)) {
    return 0;
  }
  return config.integer("sliding_window", kWindowRange).value_or(family.default_window);
}

// layer_types, which must then agree with what the class does with sliding_window.
std::vector<int> read_layer_types(const JsonFields& config, const Family& family, int num_layers,
                                  int window) {
  const Json& types = *config.find("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(num_layers)) {
    config.fail("layer_types", fmt::format("a list of {} layers", num_layers));
  }
  const bool may_mix =
      family.windows == WindowRule::kAllButEvery || family.windows == WindowRule::kFromMaxLayer;
  std::vector<int> windows;
  for (const Json& type : types) {
    const bool slides = type == "sliding_attention";
    const bool is_full = type == "full_attention";
    const bool is_known = (slides && window > 0) || (is_full && (may_mix || window == 0));
    if (!is_known) {
      refuse(config, "layer_types",
             window == 0
                 ? "\"full_attention\" for every layer"
                 : fmt::format("what sliding_window = {} makes of a {}", window, family.hf_type),
             shortened(type));
    }
    windows.push_back(slides ? window : 0);
  }
  return windows_by_list(std::move(windows));
}

std::vector<int> read_windows(const JsonFields& config, const Family& family, int num_layers) {
  const int window = read_window(config, family);
  if (config.has("layer_types")) return read_layer_types(config, family, num_layers, window);
  Family rule = family;
  if (family.windows == WindowRule::kAllButEvery && config.has("sliding_window_pattern")) {
    rule.full_every = config.required_integer("sliding_window_pattern", {1, 1024});
  }
  const int first = config.integer("max_window_layers", {0, 1 << 20}).value_or(28);
  return windows_by_rule(rule, num_layers, window, first);
}

void read_gemma(const JsonFields& config, const Family& family, ModelSpec& spec) {
  const double scalar = config.number("query_pre_attn_scalar").value_or(256.0);
  if (scalar != spec.head_dim) spec.softmax_scale = 1.0 / std::sqrt(scalar);
  spec.attention_soft_cap =
      number_unless_null(config, "attn_logit_softcapping", family.attention_cap);
  spec.logit_soft_cap = number_unless_null(config, "final_logit_softcapping", family.logit_cap);
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.norm_offset = 1.0;
}

void read_experts(const JsonFields& config, const Family& family, ModelSpec& spec) {
  const bool is_mixtral = family.experts == ExpertNames::kMixtral;
  const IntRange range{1, kExpertsRange.most};
  spec.num_experts =
      config.required_integer(is_mixtral ? "num_local_experts" : "num_experts", range);
  spec.experts_per_token = config.required_integer("num_experts_per_tok", range);
  spec.renormalizes_experts = is_mixtral || config.boolean("norm_topk_prob", false);
  if (is_mixtral) return;
  spec.intermediate_size = config.required_integer("moe_intermediate_size", kSizeRange);
  const int step = config.integer("decoder_sparse_step", kSizeRange).value_or(1);
  if (step != 1) refuse(config, "decoder_sparse_step", "1", fmt::format("{}", step));
  if (!config.integers("mlp_only_layers", {0, kNumLayersRange.most}).empty()) {
    refuse(config, "mlp_only_layers", "an empty list", shortened(*config.find("mlp_only_layers")));
  }
}

// Which of DeepSeek's experts a token goes to.
void read_choice_of_experts(const JsonFields& config, ModelSpec& spec) {
  const std::string score = config.text("scoring_func").value_or("softmax");
  if (score != "softmax") refuse(config, "scoring_func", "\"softmax\"", fmt::format("{:?}", score));
  const std::string method = config.text("topk_method").value_or("greedy");
  if (method == "greedy") return;
  if (method != "group_limited_greedy") {
    refuse(config, "topk_method", "\"greedy\" or \"group_limited_greedy\"",
           fmt::format("{:?}", method));
  }
  spec.expert_groups = config.required_integer("n_group", {1, spec.num_experts});
  spec.groups_per_token = config.required_integer("topk_group", {1, spec.expert_groups});
  const int each = spec.num_experts / spec.expert_groups;
  if (each * spec.expert_groups != spec.num_experts) {
    config.fail("n_group", fmt::format("a divisor of n_routed_experts = {}", spec.num_experts));
  }
  if (each * spec.groups_per_token < spec.experts_per_token) {
    config.fail("topk_group", fmt::format("groups of {} that hold num_experts_per_tok = {} experts",
                                          each, spec.experts_per_token));
  }
}

void read_deepseek_experts(const JsonFields& config, ModelSpec& spec) {
  const IntRange range{1, kExpertsRange.most};
  spec.dense_intermediate_size = spec.intermediate_size;
  spec.dense_layers = config.integer("first_k_dense_replace", {0, spec.num_layers}).value_or(0);
  spec.num_experts = config.required_integer("n_routed_experts", range);
  spec.experts_per_token = config.required_integer("num_experts_per_tok", {1, spec.num_experts});
  spec.intermediate_size = config.required_integer("moe_intermediate_size", kSizeRange);
  const int64_t shared = config.required_integer("n_shared_experts", kExpertsRange);
  spec.shared_intermediate_size =
      shared == 0 ? 0
                  : expect_within(kSizeRange, shared * spec.intermediate_size, config.file(),
                                  "n_shared_experts x moe_intermediate_size");
  const int step = config.integer("moe_layer_freq", kSizeRange).value_or(1);
  if (step != 1) refuse(config, "moe_layer_freq", "1", fmt::format("{}", step));
  spec.experts_scale = config.number("routed_scaling_factor").value_or(1.0);
  spec.renormalizes_experts = config.boolean("norm_topk_prob", false);
  if (spec.renormalizes_experts && spec.experts_scale != 1.0) {
    refuse(config, "norm_topk_prob",
           "false beside a routed_scaling_factor (engines differ in whether both apply)", "true");
  }
  read_choice_of_experts(config, spec);
}

// Ranks and sizes of MLA. Of the cache, num_kv_heads and head_dim are those of the latent.
void read_latent(const JsonFields& config, ModelSpec& spec) {
  LatentSpec latent;
  latent.q_rank = config.integer("q_lora_rank", kSizeRange).value_or(0);
  latent.kv_rank = config.required_integer("kv_lora_rank", kHeadDimRange);
  latent.nope_dim = config.required_integer("qk_nope_head_dim", kHeadDimRange);
  latent.rope_dim = config.required_integer("qk_rope_head_dim", kHeadDimRange);
  latent.value_dim = config.required_integer("v_head_dim", kHeadDimRange);
  if (latent.rope_dim % 2 != 0) {
    config.fail("qk_rope_head_dim", "an even number (RoPE turns pairs)");
  }
  if (!config.boolean("rope_interleave", true)) refuse(config, "rope_interleave", "true", "false");
  spec.num_kv_heads = 1;
  spec.head_dim = latent.kv_rank + latent.rope_dim;
  spec.softmax_scale = 1.0 / std::sqrt(static_cast<double>(latent.nope_dim + latent.rope_dim));
  spec.latent = latent;
}

int read_head_dim(const JsonFields& config, const Family& family, const ModelSpec& spec) {
  std::optional<int> head_dim = config.integer("head_dim", kHeadDimRange);
  if (!head_dim && family.default_head_dim > 0) head_dim = family.default_head_dim;
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
  const Family& family = read_family(config);
  ModelSpec spec;
  spec.architecture = family.hf_type;
  refuse_other_parts(config, family);
  spec.name = config.text("_name_or_path").value_or("");
  spec.num_layers = config.required_integer("num_hidden_layers", kNumLayersRange);
  spec.hidden_size = config.required_integer("hidden_size", kSizeRange);
  spec.intermediate_size = config.required_integer("intermediate_size", kSizeRange);
  spec.num_q_heads = config.required_integer("num_attention_heads", kHeadsRange);
  spec.num_kv_heads = config.integer("num_key_value_heads", kHeadsRange).value_or(spec.num_q_heads);
  if (family.has_latent) {
    read_latent(config, spec);
  } else {
    spec.head_dim = read_head_dim(config, family, spec);
  }
  spec.vocab_size = config.required_integer("vocab_size", kVocabRange);
  spec.max_positions = config.required_integer("max_position_embeddings", kPositionsRange);
  spec.rms_norm_eps = config.number("rms_norm_eps").value_or(family.default_eps);
  spec.windows = read_windows(config, family, spec.num_layers);
  read_hf_ropes(config, family, spec);
  spec.tied_embeddings = config.boolean("tie_word_embeddings", family.is_gemma);
  const bool attention_bias = family.may_have_biases && config.boolean("attention_bias", false);
  spec.has_qkv_bias = family.has_qkv_bias || attention_bias;
  spec.has_o_bias = attention_bias;
  take_family_parts(family, spec);
  if (family.is_gemma) read_gemma(config, family, spec);
  if (family.has_latent) {
    spec.softmax_scale *= latent_score_factor(spec.rope);
    read_deepseek_experts(config, spec);
  } else if (family.experts != ExpertNames::kNone) {
    read_experts(config, family, spec);
  }
  spec.bos_id = config.integer("bos_token_id", kTokenRange);
  spec.eos_ids = config.integers("eos_token_id", kTokenRange);
  return spec;
}

}  // namespace kv
