#include "checkpoint/architecture.h"

#include <fmt/format.h>

#include <array>

#include "checkpoint/family.h"

namespace kv {
namespace {

using Shape = std::vector<int64_t>;

// The three matrices of an expert: of the model, as Mixtral has them, as GGUF stacks them.
struct ExpertMatrix {
  const char* name;
  const char* mixtral;
  const char* gguf;
};
constexpr std::array<ExpertMatrix, 3> kExpertMatrices = {{{"gate_proj", "w1", "ffn_gate_exps"},
                                                          {"up_proj", "w3", "ffn_up_exps"},
                                                          {"down_proj", "w2", "ffn_down_exps"}}};

class TensorList {
 public:
  explicit TensorList(const ModelSpec& spec) : spec_(spec), family_(family_of(spec)) {}

  std::vector<RequiredTensor> build() {
    const int64_t hidden = spec_.hidden_size;
    add("model.embed_tokens.weight", "token_embd.weight", {spec_.vocab_size, hidden});
    for (int layer = 0; layer < spec_.num_layers; ++layer) add_layer(layer);
    add("model.norm.weight", "output_norm.weight", {hidden});
    if (!spec_.tied_embeddings) add("lm_head.weight", "output.weight", {spec_.vocab_size, hidden});
    return std::move(list_);
  }

 private:
  RequiredTensor& add(const std::string& name, const std::string& gguf, const Shape& shape) {
    return list_.emplace_back(RequiredTensor{name, shape, {name, shape}, {gguf, shape}});
  }

  void add_layer(int layer) {
    hf_ = fmt::format("model.layers.{}.", layer);
    gguf_ = fmt::format("blk.{}.", layer);
    add_weight("input_layernorm", "attn_norm", {spec_.hidden_size});
    spec_.latent ? add_latent_attention(*spec_.latent) : add_attention();
    const bool has_post = spec_.has_post_norms;
    if (has_post)
      add_weight("post_attention_layernorm", "post_attention_norm", {spec_.hidden_size});
    add_weight(has_post ? "pre_feedforward_layernorm" : "post_attention_layernorm", "ffn_norm",
               {spec_.hidden_size});
    if (spec_.has_experts(layer)) {
      add_experts();
    } else {
      add_feed_forward(
          "mlp", spec_.num_experts > 0 ? spec_.dense_intermediate_size : spec_.intermediate_size);
    }
    if (has_post) add_weight("post_feedforward_layernorm", "post_ffw_norm", {spec_.hidden_size});
  }

  void add_attention() {
    const int64_t hidden = spec_.hidden_size;
    const int64_t q_rows = int64_t{spec_.num_q_heads} * spec_.head_dim;
    const int64_t kv_rows = int64_t{spec_.num_kv_heads} * spec_.head_dim;
    add_linear("self_attn.q_proj", "attn_q", q_rows, hidden, spec_.has_qkv_bias, true);
    add_linear("self_attn.k_proj", "attn_k", kv_rows, hidden, spec_.has_qkv_bias, true);
    add_linear("self_attn.v_proj", "attn_v", kv_rows, hidden, spec_.has_qkv_bias, false);
    if (family_.has_fused_projections) {
      fuse(3, "self_attn.qkv_proj.weight", "attn_qkv.weight", {q_rows + 2 * kv_rows, hidden});
    }
    if (spec_.has_qk_norm) {
      add_weight("self_attn.q_norm", "attn_q_norm", {spec_.head_dim});
      add_weight("self_attn.k_norm", "attn_k_norm", {spec_.head_dim});
    }
    add_linear("self_attn.o_proj", "attn_output", hidden, q_rows, spec_.has_o_bias, false);
  }

  void add_latent_attention(const LatentSpec& latent) {
    const int64_t hidden = spec_.hidden_size, heads = spec_.num_q_heads;
    const int64_t q_rows = heads * (latent.nope_dim + latent.rope_dim);
    if (latent.q_rank == 0) {
      add_weight("self_attn.q_proj", "attn_q", {q_rows, hidden});
    } else {
      add_weight("self_attn.q_a_proj", "attn_q_a", {latent.q_rank, hidden});
      add_weight("self_attn.q_a_layernorm", "attn_q_a_norm", {latent.q_rank});
      add_weight("self_attn.q_b_proj", "attn_q_b", {q_rows, latent.q_rank});
    }
    add_weight("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", {spec_.head_dim, hidden});
    add_weight("self_attn.kv_a_layernorm", "attn_kv_a_norm", {latent.kv_rank});
    add_weight("self_attn.kv_b_proj", "attn_kv_b",
               {heads * (latent.nope_dim + latent.value_dim), latent.kv_rank});
    add_weight("self_attn.o_proj", "attn_output", {hidden, heads * latent.value_dim});
  }

  void add_feed_forward(const std::string& name, int64_t inner) {
    const int64_t hidden = spec_.hidden_size;
    add_weight(name + ".gate_proj", "ffn_gate", {inner, hidden});
    add_weight(name + ".up_proj", "ffn_up", {inner, hidden});
    if (family_.has_fused_projections) {
      fuse(2, "mlp.gate_up_proj.weight", "ffn_up.weight", {2 * inner, hidden});
    }
    add_weight(name + ".down_proj", "ffn_down", {hidden, inner});
  }

  void add_experts() {
    const bool is_mixtral = family_.experts == ExpertNames::kMixtral;
    const int64_t hidden = spec_.hidden_size, inner = spec_.intermediate_size;
    add_weight("mlp.gate", "ffn_gate_inp", {spec_.num_experts, hidden});
    if (is_mixtral) list_.back().hf.name = hf_ + "block_sparse_moe.gate.weight";
    if (spec_.shared_intermediate_size > 0)
      add_feed_forward("mlp.shared_experts", spec_.shared_intermediate_size);
    for (int64_t expert = 0; expert < spec_.num_experts; ++expert) {
      for (const ExpertMatrix& matrix : kExpertMatrices) {
        const bool is_down = &matrix == &kExpertMatrices[2];
        const int64_t rows = is_down ? hidden : inner, columns = is_down ? inner : hidden;
        const std::string name = fmt::format("mlp.experts.{}.{}", expert, matrix.name);
        add_weight(name, matrix.gguf, {rows, columns});
        RequiredTensor& added = list_.back();
        added.gguf.shape = {spec_.num_experts, rows, columns};
        added.gguf.first_row = expert * rows;
        if (!is_mixtral) continue;
        added.hf.name =
            fmt::format("{}block_sparse_moe.experts.{}.{}.weight", hf_, expert, matrix.mixtral);
      }
    }
  }

  void add_weight(const std::string& hf, const std::string& gguf, const Shape& shape) {
    add(hf_ + hf + ".weight", gguf_ + gguf + ".weight", shape);
  }

  void add_linear(const char* hf, const char* gguf, int64_t out, int64_t in, bool has_bias,
                  bool is_rotated) {
    add_weight(hf, gguf, {out, in});
    list_.back().is_rotated = is_rotated;
    if (!has_bias) return;
    add(fmt::format("{}{}.bias", hf_, hf), fmt::format("{}{}.bias", gguf_, gguf), {out})
        .is_rotated = is_rotated;
  }

  // The last `count` tensors lie in one, in both kinds of file.
  void fuse(int count, const char* hf, const char* gguf, const Shape& shape) {
    int64_t row = 0;
    for (auto part = list_.end() - count; part != list_.end(); ++part) {
      part->hf = {hf_ + hf, shape, row};
      part->gguf = {gguf_ + gguf, shape, row};
      row += part->shape[0];
    }
  }

  const ModelSpec& spec_;
  const Family& family_;
  std::string hf_;    // prefix of the layer being added
  std::string gguf_;  // likewise
  std::vector<RequiredTensor> list_;
};

}  // namespace

std::vector<RequiredTensor> required_tensors(const ModelSpec& spec) {
  return TensorList(spec).build();
}

}  // namespace kv
