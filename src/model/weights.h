#pragma once

#include <functional>
#include <memory>
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
  PackedMatrix qkv;             // [(num_q_heads + 2 * num_kv_heads) * head_dim, hidden]
  std::vector<float> qkv_bias;  // as qkv's rows, or empty
  PackedMatrix o;               // [hidden, num_q_heads * head_dim]
  std::vector<float> o_bias;    // [hidden], or empty
  PackedMatrix router;          // [num_experts, hidden], where there are experts
  std::vector<Mlp> mlps;        // one, or the experts
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
};

}  // namespace kv
