#include "checkpoint/architecture.h"

#include <fmt/format.h>

namespace kv {
namespace {

class TensorList {
 public:
  explicit TensorList(const ModelSpec& spec) : spec_(spec) {}

  std::vector<RequiredTensor> build() {
    const int64_t hidden = spec_.hidden_size;
    add("model.embed_tokens.weight", "token_embd.weight", {spec_.vocab_size, hidden});
    for (int layer = 0; layer < spec_.num_layers; ++layer) add_layer(layer);
    add("model.norm.weight", "output_norm.weight", {hidden});
    if (!spec_.tied_embeddings) add("lm_head.weight", "output.weight", {spec_.vocab_size, hidden});
    return std::move(list_);
  }

 private:
  void add(std::string name, std::string gguf_name, std::vector<int64_t> shape,
           bool is_rotated = false) {
    list_.push_back({std::move(name), std::move(gguf_name), std::move(shape), is_rotated});
  }

  void add_layer(int layer) {
    const int64_t hidden = spec_.hidden_size;
    const int64_t inner = spec_.intermediate_size;
    const int64_t q_rows = int64_t{spec_.num_q_heads} * spec_.head_dim;
    const int64_t kv_rows = int64_t{spec_.num_kv_heads} * spec_.head_dim;
    hf_ = fmt::format("model.layers.{}.", layer);
    gguf_ = fmt::format("blk.{}.", layer);
    add_weight("input_layernorm", "attn_norm", {hidden});
    add_linear("self_attn.q_proj", "attn_q", q_rows, hidden, spec_.has_qkv_bias, true);
    add_linear("self_attn.k_proj", "attn_k", kv_rows, hidden, spec_.has_qkv_bias, true);
    add_linear("self_attn.v_proj", "attn_v", kv_rows, hidden, spec_.has_qkv_bias, false);
    add_linear("self_attn.o_proj", "attn_output", hidden, q_rows, spec_.has_o_bias, false);
    add_weight("post_attention_layernorm", "ffn_norm", {hidden});
    add_linear("mlp.gate_proj", "ffn_gate", inner, hidden, false, false);
    add_linear("mlp.up_proj", "ffn_up", inner, hidden, false, false);
    add_linear("mlp.down_proj", "ffn_down", hidden, inner, false, false);
  }

  void add_weight(const char* hf, const char* gguf, std::vector<int64_t> shape) {
    add(fmt::format("{}{}.weight", hf_, hf), fmt::format("{}{}.weight", gguf_, gguf),
        std::move(shape));
  }

  void add_linear(const char* hf, const char* gguf, int64_t out, int64_t in, bool has_bias,
                  bool is_rotated) {
    add_weight(hf, gguf, {out, in});
    list_.back().is_rotated = is_rotated;
    if (!has_bias) return;
    add(fmt::format("{}{}.bias", hf_, hf), fmt::format("{}{}.bias", gguf_, gguf), {out},
        is_rotated);
  }

  const ModelSpec& spec_;
  std::string hf_;    // prefix of the layer being added
  std::string gguf_;  // likewise
  std::vector<RequiredTensor> list_;
};

}  // namespace

std::vector<RequiredTensor> required_tensors(const ModelSpec& spec) {
  return TensorList(spec).build();
}

}  // namespace kv
