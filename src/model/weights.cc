#include "model/weights.h"

#include <fmt/core.h>

#include <algorithm>

namespace kv {
namespace {

std::vector<float> read_norm(const Checkpoint& checkpoint, const std::string& name) {
  std::vector<float> out(static_cast<size_t>(checkpoint.shape(name).at(0)));
  checkpoint.read_f32(name, 0, static_cast<int64_t>(out.size()), out.data());
  for (float& weight : out) weight += static_cast<float>(checkpoint.spec().norm_offset);
  return out;
}

std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name) {
  std::vector<float> out(static_cast<size_t>(checkpoint.shape(name).at(0)));
  checkpoint.read_f32(name, 0, static_cast<int64_t>(out.size()), out.data());
  return out;
}

/// Several matrices with the same number of columns, one below the other.
PackedMatrix pack(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  std::vector<int64_t> starts = {0};
  for (const std::string& name : names)
    starts.push_back(starts.back() + checkpoint.shape(name).at(0));
  const int64_t columns = checkpoint.shape(names[0]).at(1);
  PackedMatrix packed =
      PackedMatrix::pack(starts.back(), columns, [&](int64_t first, int64_t count, uint16_t* out) {
        for (size_t i = 0; i < names.size(); ++i) {
          const int64_t begin = std::max(first, starts[i]),
                        end = std::min(first + count, starts[i + 1]);
          if (begin >= end) continue;
          checkpoint.read_bf16(names[i], begin - starts[i], end - begin,
                               out + (begin - first) * columns);
        }
      });
  for (const std::string& name : names) checkpoint.drop(name);
  return packed;
}

std::vector<float> read_qkv_bias(const Checkpoint& checkpoint, const std::string& attention) {
  std::vector<float> out;
  if (!checkpoint.spec().has_qkv_bias) return out;
  for (const char* which : {"q_proj", "k_proj", "v_proj"}) {
    const auto part = read_vector(checkpoint, attention + which + ".bias");
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

Mlp read_mlp(const Checkpoint& checkpoint, const std::string& prefix) {
  Mlp mlp;
  mlp.gate_up = pack(checkpoint, {prefix + "gate_proj.weight", prefix + "up_proj.weight"});
  mlp.down = pack(checkpoint, {prefix + "down_proj.weight"});
  return mlp;
}

std::unique_ptr<RopeTable> rope_table(const RopeSpec& rope, const ModelSpec& spec) {
  return std::make_unique<RopeTable>(inv_freq(rope, spec.head_dim), attention_factor(rope),
                                     spec.max_positions);
}

}  // namespace

std::vector<const PackedMatrix*> Model::Layer::matrices(const ModelSpec& spec,
                                                        bool only_active) const {
  std::vector<const PackedMatrix*> out = {&qkv, &o};
  if (spec.num_experts > 0) out.push_back(&router);
  const size_t active = spec.num_experts > 0 && only_active
                            ? static_cast<size_t>(spec.experts_per_token)
                            : mlps.size();
  for (size_t i = 0; i < active; ++i) {
    out.push_back(&mlps[i].gate_up);
    out.push_back(&mlps[i].down);
  }
  return out;
}

Model::Layer Model::Weights::read_layer(const Checkpoint& checkpoint, int index) {
  const ModelSpec& spec = checkpoint.spec();
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const auto norm = [&](const std::string& name) {
    return read_norm(checkpoint, name + ".weight");
  };
  Layer layer;
  layer.input_norm = norm(prefix + "input_layernorm");
  layer.mlp_norm = norm(
      prefix + (spec.has_post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"));
  if (spec.has_post_norms) {
    layer.attention_post = norm(prefix + "post_attention_layernorm");
    layer.mlp_post = norm(prefix + "post_feedforward_layernorm");
  }
  if (spec.has_qk_norm) {
    layer.q_norm = norm(attention + "q_norm");
    layer.k_norm = norm(attention + "k_norm");
  }
  layer.qkv = pack(checkpoint, {attention + "q_proj.weight", attention + "k_proj.weight",
                                attention + "v_proj.weight"});
  layer.qkv_bias = read_qkv_bias(checkpoint, attention);
  layer.o = pack(checkpoint, {attention + "o_proj.weight"});
  if (spec.has_o_bias) layer.o_bias = read_vector(checkpoint, attention + "o_proj.bias");
  if (spec.num_experts > 0) layer.router = pack(checkpoint, {mlp + "gate.weight"});
  for (int expert = 0; expert < std::max(1, spec.num_experts); ++expert) {
    const bool is_dense = spec.num_experts == 0;
    layer.mlps.push_back(
        read_mlp(checkpoint, is_dense ? mlp : fmt::format("{}experts.{}.", mlp, expert)));
  }
  return layer;
}

std::shared_ptr<const Model::Weights> Model::Weights::read(
    const Checkpoint& checkpoint, const std::function<void(double)>& progress) {
  const ModelSpec& spec = checkpoint.spec();
  auto weights = std::make_shared<Weights>();
  weights->rope = rope_table(spec.rope, spec);
  if (spec.window_rope) weights->window_rope = rope_table(*spec.window_rope, spec);
  for (int i = 0; i < spec.num_layers; ++i) {
    weights->layers.push_back(read_layer(checkpoint, i));
    const bool is_local = spec.turns_with_window_rope(i);
    weights->layers.back().rope = (is_local ? weights->window_rope : weights->rope).get();
    if (progress) progress((i + 1.0) / (spec.num_layers + 1));
  }
  weights->final_norm = read_norm(checkpoint, "model.norm.weight");
  weights->head =
      pack(checkpoint, {spec.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"});
  if (progress) progress(1);
  return weights;
}

int64_t Model::Weights::packed_bytes(const ModelSpec& spec) const {
  int64_t bytes = head.packed_bytes();
  for (const Layer& layer : layers) {
    for (const PackedMatrix* m : layer.matrices(spec, false)) bytes += m->packed_bytes();
  }
  return bytes;
}

}  // namespace kv
