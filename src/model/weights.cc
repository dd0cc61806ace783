#include "model/weights.h"

#include <fmt/core.h>

#include <algorithm>

namespace kv {
namespace {

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

}  // namespace

Model::Layer Model::Weights::read_layer(const Checkpoint& checkpoint, int index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  Layer layer;
  layer.input_norm = read_vector(checkpoint, prefix + "input_layernorm.weight");
  layer.post_norm = read_vector(checkpoint, prefix + "post_attention_layernorm.weight");
  layer.qkv = pack(checkpoint, {attention + "q_proj.weight", attention + "k_proj.weight",
                                attention + "v_proj.weight"});
  layer.qkv_bias = read_qkv_bias(checkpoint, attention);
  layer.o = pack(checkpoint, {attention + "o_proj.weight"});
  if (checkpoint.spec().has_o_bias)
    layer.o_bias = read_vector(checkpoint, attention + "o_proj.bias");
  layer.gate_up = pack(checkpoint, {mlp + "gate_proj.weight", mlp + "up_proj.weight"});
  layer.down = pack(checkpoint, {mlp + "down_proj.weight"});
  return layer;
}

std::shared_ptr<const Model::Weights> Model::Weights::read(
    const Checkpoint& checkpoint, const std::function<void(double)>& progress) {
  const ModelSpec& spec = checkpoint.spec();
  auto weights = std::make_shared<Weights>();
  for (int i = 0; i < spec.num_layers; ++i) {
    weights->layers.push_back(read_layer(checkpoint, i));
    if (progress) progress((i + 1.0) / (spec.num_layers + 1));
  }
  weights->final_norm = read_vector(checkpoint, "model.norm.weight");
  weights->head =
      pack(checkpoint, {spec.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"});
  weights->rope = std::make_unique<RopeTable>(inv_freq(spec.rope, spec.head_dim),
                                              attention_factor(spec.rope), spec.max_positions);
  if (progress) progress(1);
  return weights;
}

int64_t Model::Weights::packed_bytes() const {
  int64_t bytes = head.packed_bytes();
  for (const Layer& layer : layers) {
    for (const PackedMatrix* m : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down})
      bytes += m->packed_bytes();
  }
  return bytes;
}

}  // namespace kv
