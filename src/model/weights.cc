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

/// Rows of a tensor in heads of `head` rows each. Of each head the rows from `first` on, `count` of
/// them, turn in pairs (2i, 2i + 1); RoPE here turns (i, i + count / 2). 0 = no row turns.
struct RowOrder {
  int64_t head = 0, first = 0, count = 0;

  int64_t stored(int64_t row) const {
    if (count == 0 || row % head < first) return row;
    const int64_t within = row % head - first, half = count / 2;
    return row - within + 2 * (within % half) + within / half;
  }
};
struct OrderedRows {
  std::string name;
  RowOrder order;
};

/// As pack(), with rows in the order that RoPE needs.
PackedMatrix pack_in_order(const Checkpoint& checkpoint, const std::vector<OrderedRows>& tensors) {
  std::vector<std::pair<const OrderedRows*, int64_t>> rows;
  for (const OrderedRows& tensor : tensors) {
    for (int64_t row = 0; row < checkpoint.shape(tensor.name).at(0); ++row)
      rows.emplace_back(&tensor, tensor.order.stored(row));
  }
  const int64_t columns = checkpoint.shape(tensors[0].name).at(1);
  PackedMatrix packed = PackedMatrix::pack(
      std::ssize(rows), columns, [&](int64_t first, int64_t count, uint16_t* out) {
        for (int64_t i = first; i < first + count; ++i, out += columns) {
          const auto& [tensor, row] = rows[static_cast<size_t>(i)];
          checkpoint.read_bf16(tensor->name, row, 1, out);
        }
      });
  for (const OrderedRows& tensor : tensors) checkpoint.drop(tensor.name);
  return packed;
}

/// Rows [first_row, first_row + num_rows) of a matrix, transposed.
PackedMatrix pack_transposed(const Checkpoint& checkpoint, const std::string& name,
                             int64_t first_row, int64_t num_rows) {
  const int64_t columns = checkpoint.shape(name).at(1);
  std::vector<uint16_t> rows(static_cast<size_t>(num_rows * columns));
  checkpoint.read_bf16(name, first_row, num_rows, rows.data());
  return PackedMatrix::pack(columns, num_rows, [&](int64_t first, int64_t count, uint16_t* out) {
    for (int64_t column = first; column < first + count; ++column) {
      for (int64_t row = 0; row < num_rows; ++row)
        *out++ = rows[static_cast<size_t>(row * columns + column)];
    }
  });
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
  return std::make_unique<RopeTable>(inv_freq(rope, spec.rope_dim()), attention_factor(rope),
                                     spec.max_positions);
}

}  // namespace

std::vector<const PackedMatrix*> Model::Layer::matrices(const ModelSpec& spec,
                                                        bool only_active) const {
  std::vector<const PackedMatrix*> out = {&qkv, &o};
  if (!q_latent_norm.empty()) out.push_back(&q_up);
  for (const auto* heads : {&key_up, &value_up}) {
    for (const PackedMatrix& one : *heads) out.push_back(&one);
  }
  if (has_experts) out.push_back(&router);
  if (shared) {
    out.push_back(&shared->gate_up);
    out.push_back(&shared->down);
  }
  const size_t active =
      has_experts && only_active ? static_cast<size_t>(spec.experts_per_token) : mlps.size();
  for (size_t i = 0; i < active; ++i) {
    out.push_back(&mlps[i].gate_up);
    out.push_back(&mlps[i].down);
  }
  return out;
}

void Model::Weights::read_attention(const Checkpoint& checkpoint, const std::string& attention,
                                    Layer& layer) {
  const ModelSpec& spec = checkpoint.spec();
  if (spec.has_qk_norm) {
    layer.q_norm = read_norm(checkpoint, attention + "q_norm.weight");
    layer.k_norm = read_norm(checkpoint, attention + "k_norm.weight");
  }
  layer.qkv = pack(checkpoint, {attention + "q_proj.weight", attention + "k_proj.weight",
                                attention + "v_proj.weight"});
  layer.qkv_bias = read_qkv_bias(checkpoint, attention);
}

void Model::Weights::read_latent_attention(const Checkpoint& checkpoint,
                                           const std::string& attention, Layer& layer) {
  const LatentSpec& spec = *checkpoint.spec().latent;
  const int64_t head = spec.nope_dim + spec.rope_dim, heads = checkpoint.spec().num_q_heads;
  const RowOrder query_rows{head, spec.nope_dim, spec.rope_dim};
  const RowOrder key_rows{spec.kv_rank + spec.rope_dim, spec.kv_rank, spec.rope_dim};
  const std::string latent = attention + "kv_a_proj_with_mqa.weight";
  if (spec.q_rank == 0) {
    layer.qkv =
        pack_in_order(checkpoint, {{attention + "q_proj.weight", query_rows}, {latent, key_rows}});
  } else {
    layer.qkv =
        pack_in_order(checkpoint, {{attention + "q_a_proj.weight", {}}, {latent, key_rows}});
    layer.q_latent_norm = read_norm(checkpoint, attention + "q_a_layernorm.weight");
    layer.q_up = pack_in_order(checkpoint, {{attention + "q_b_proj.weight", query_rows}});
  }
  layer.latent_norm = read_norm(checkpoint, attention + "kv_a_layernorm.weight");
  const std::string up = attention + "kv_b_proj.weight";
  const int64_t rows = spec.nope_dim + spec.value_dim;
  for (int64_t h = 0; h < heads; ++h) {
    layer.key_up.push_back(pack_transposed(checkpoint, up, h * rows, spec.nope_dim));
    layer.value_up.push_back(PackedMatrix::pack(
        spec.value_dim, spec.kv_rank, [&](int64_t first, int64_t count, uint16_t* out) {
          checkpoint.read_bf16(up, h * rows + spec.nope_dim + first, count, out);
        }));
  }
  checkpoint.drop(up);
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
  spec.latent ? read_latent_attention(checkpoint, attention, layer)
              : read_attention(checkpoint, attention, layer);
  layer.o = pack(checkpoint, {attention + "o_proj.weight"});
  if (spec.has_o_bias) layer.o_bias = read_vector(checkpoint, attention + "o_proj.bias");
  if (!spec.has_experts(index)) {
    layer.mlps.push_back(read_mlp(checkpoint, mlp));
    return layer;
  }
  layer.has_experts = true;
  layer.router = pack(checkpoint, {mlp + "gate.weight"});
  for (int expert = 0; expert < spec.num_experts; ++expert)
    layer.mlps.push_back(read_mlp(checkpoint, fmt::format("{}experts.{}.", mlp, expert)));
  if (spec.shared_intermediate_size > 0)
    layer.shared = read_mlp(checkpoint, mlp + "shared_experts.");
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
