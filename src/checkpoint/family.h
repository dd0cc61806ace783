#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "checkpoint/model_spec.h"

namespace kv {

/// Which layers attend to a window, when config.json does not list their types.
enum class WindowRule : uint8_t {
  kNone,          // none; a window that is declared is not supported
  kAll,           // all, when there is a window
  kAllButEvery,   // all but every `full_every`-th
  kFromMaxLayer,  // those from max_window_layers on, when use_sliding_window is true
};

/// Where the experts' tensors go by names of their own.
enum class ExpertNames : uint8_t { kNone, kProjections, kMixtral };

/// What all models of one architecture have in common, whatever their files declare.
struct Family {
  std::string_view hf_type;   // model_type of config.json; ModelSpec::architecture
  std::string_view hf_class;  // architectures of config.json
  std::string_view gguf;      // general.architecture; empty: not read from GGUF
  Activation activation = Activation::kSilu;
  WindowRule windows = WindowRule::kNone;
  int full_every = 0;
  ExpertNames experts = ExpertNames::kNone;
  bool has_qkv_bias = false;
  bool may_have_biases = false;  // attention_bias is honoured
  bool has_qk_norm = false;
  bool has_post_norms = false;
  bool has_fused_projections = false;  // Q, K, V in one tensor, gate and up in another
  bool is_gemma = false;         // safetensors hold norms less 1; embedding times sqrt(hidden_size)
  bool has_latent = false;       // MLA, and experts as DeepSeek declares them
  bool has_window_rope = false;  // layers with a window turn with a base of their own
  double default_eps = 1e-6;
  double default_theta = 10000.0;
  int default_head_dim = 0;    // 0 = hidden_size / num_attention_heads
  int default_window = 0;      // where sliding_window is not declared
  double attention_cap = 0.0;  // default of attn_logit_softcapping; 0 = has none
  double logit_cap = 0.0;      // likewise final_logit_softcapping

  /// GGUF keeps rows of Q and K interleaved.
  bool is_interleaved_in_gguf() const { return gguf == "llama"; }
};

/// All that can be read; defaults are those of transformers' configuration classes.
inline constexpr std::array<Family, 10> kFamilies = {{
    {.hf_type = "llama", .hf_class = "LlamaForCausalLM", .gguf = "llama", .may_have_biases = true},
    {.hf_type = "mistral",
     .hf_class = "MistralForCausalLM",
     .gguf = "llama",
     .windows = WindowRule::kAll,
     .default_window = 4096},
    {.hf_type = "mixtral",
     .hf_class = "MixtralForCausalLM",
     .gguf = "llama",
     .windows = WindowRule::kAll,
     .experts = ExpertNames::kMixtral,
     .default_eps = 1e-5,
     .default_theta = 1e6},
    {.hf_type = "qwen2",
     .hf_class = "Qwen2ForCausalLM",
     .gguf = "qwen2",
     .windows = WindowRule::kFromMaxLayer,
     .has_qkv_bias = true,
     .default_window = 4096},
    {.hf_type = "qwen3",
     .hf_class = "Qwen3ForCausalLM",
     .gguf = "qwen3",
     .windows = WindowRule::kFromMaxLayer,
     .has_qk_norm = true,
     .default_head_dim = 128,
     .default_window = 4096},
    {.hf_type = "qwen3_moe",
     .hf_class = "Qwen3MoeForCausalLM",
     .gguf = "qwen3moe",
     .experts = ExpertNames::kProjections,
     .has_qk_norm = true},
    {.hf_type = "phi3",
     .hf_class = "Phi3ForCausalLM",
     .gguf = "phi3",
     .windows = WindowRule::kAll,
     .has_fused_projections = true,
     .default_eps = 1e-5},
    {.hf_type = "gemma2",
     .hf_class = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     .activation = Activation::kGeluTanh,
     .windows = WindowRule::kAllButEvery,
     .full_every = 2,
     .has_post_norms = true,
     .is_gemma = true,
     .default_head_dim = 256,
     .default_window = 4096,
     .attention_cap = 50.0,
     .logit_cap = 30.0},
    {.hf_type = "gemma3_text",
     .hf_class = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .activation = Activation::kGeluTanh,
     .windows = WindowRule::kAllButEvery,
     .full_every = 6,
     .has_qk_norm = true,
     .has_post_norms = true,
     .is_gemma = true,
     .has_window_rope = true,
     .default_theta = 1e6,
     .default_head_dim = 256,
     .default_window = 4096},
    {.hf_type = "deepseek_v2",
     .hf_class = "DeepseekV2ForCausalLM",
     .gguf = "",
     .experts = ExpertNames::kProjections,
     .has_latent = true},
}};

/// By model_type, or by GGUF's name of the architecture, where a file with experts is told from one
/// without; null when there is none.
const Family* find_family(std::string_view hf_type);
const Family* find_gguf_family(std::string_view architecture, bool has_experts);

/// The family of a specification. Throws UnsupportedError for an architecture that is none.
const Family& family_of(const ModelSpec& spec);

/// "llama, mistral, ..." and "llama, qwen2, ...": what can be read, for messages.
std::string known_hf_types();
std::string known_gguf_architectures();

/// Puts what all models of the family have into a specification.
void take_family_parts(const Family& family, ModelSpec& spec);

/// Windows as ModelSpec holds them: none at all where every layer's is 0.
std::vector<int> windows_by_list(std::vector<int> windows);

/// Window of each of `num_layers` layers by the family's rule; `first` is max_window_layers.
std::vector<int> windows_by_rule(const Family& family, int num_layers, int window, int first);

}  // namespace kv
