#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "ops/matmul.h"
#include "ops/rope.h"

namespace kv {

/// Feed-forward weights of a layer, or of one of its experts.
struct Mlp {
  PackedMatrix gate_up;  // [2 * intermediate, hidden], the gate first
  PackedMatrix down;     // [hidden, intermediate]
};

struct Model::Layer {
  std::vector<float> input_norm, mlp_norm;      // [hidden]
  std::vector<float> attention_post, mlp_post;  // [hidden], or empty
  std::vector<float> q_norm, k_norm;            // [head_dim], or empty
  // [(num_q_heads + 2 * num_kv_heads) * head_dim, hidden]; of MLA [queries or their latent |
  // latent | part of the key that turns, hidden]
  PackedMatrix qkv;
  std::vector<float> qkv_bias;  // as qkv's rows, or empty
  PackedMatrix o;               // [hidden, num_q_heads * head_dim (value_dim of MLA)]
  std::vector<float> o_bias;    // [hidden], or empty
  std::vector<float> q_latent_norm, latent_norm;  // [q_rank], [kv_rank] of MLA, or empty
  PackedMatrix q_up;                              // [heads * (nope + rope), q_rank], or none
  std::vector<PackedMatrix> key_up;               // per head [kv_rank, nope]: query to latent
  std::vector<PackedMatrix> value_up;             // per head [value_dim, kv_rank]
  PackedMatrix router;  // [num_experts, hidden], where the layer has experts
  bool has_experts = false;
  std::vector<Mlp> mlps;      // one, or the experts
  std::optional<Mlp> shared;  // beside the experts
  const RopeTable* rope = nullptr;

  /// All matrices; of experts as many as work on one token when `only_active`.
  std::vector<const PackedMatrix*> matrices(const ModelSpec& spec, bool only_active) const;
};

struct Model::Weights {
  std::vector<Layer> layers;
  std::vector<float> final_norm;
  PackedMatrix head;
  std::unique_ptr<RopeTable> rope, window_rope;

  /// Reads and packs all of a checkpoint's weights; `progress` (may be null) is told the share
  /// done.
  static std::shared_ptr<const Weights> read(const Checkpoint& checkpoint,
                                             const std::function<void(double)>& progress);
  int64_t packed_bytes(const ModelSpec& spec) const;

 private:
  static Layer read_layer(const Checkpoint& checkpoint, int index);
  static void read_attention(const Checkpoint& checkpoint, const std::string& prefix, Layer& layer);
  static void read_latent_attention(const Checkpoint& checkpoint, const std::string& prefix,
                                    Layer& layer);
};

}  // namespace kv
