#pragma once

#include <vector>

#include "model/model.h"
#include "model/weights.h"
#include "ops/attend.h"

namespace kv {

/// One call of Model::forward: the batch's rows and the buffers that every layer reuses. Rows are
/// ordered by cache, so that each cache's sequences are one piece of every buffer.
class Model::ForwardPass {
 public:
  ForwardPass(const Model& model, std::span<const Segment> segments, int32_t keys_per_split);

  HiddenStates run();
  const std::vector<ForwardKernels>& kernels() const { return kernels_; }

 private:
  /// The sequences that one cache holds, as attend() wants them. Static scales belong to the
  /// cache's arm.
  struct Group {
    const KvCache* cache;
    const ScaleTable* scales;
    Math math;
    std::vector<size_t> segments;
    int64_t first_row = 0;
    size_t max_blocks = 1;
    std::vector<std::vector<int32_t>> block_tables;  // [pools of the cache]
    std::vector<int32_t> seq_lens, query_start;
  };

  void group_segments();
  void lay_out_rows();
  void fill_block_tables(Group& group) const;
  void embed();

  void attention_block(int64_t l);
  void project_heads(const Layer& layer);
  void norm_heads(const Layer& layer);
  void project_latents(const Layer& layer);
  void absorb_queries(const Layer& layer, const TensorView& q);
  void expand_values(const Layer& layer, const TensorView& attended, uint16_t* out) const;
  void project_out(const Layer& layer);
  void norm_block_out(std::span<const float> weight);
  void add_key_offset(int64_t l);
  void disperse_keys();
  void round_values(int64_t l);
  void store(int64_t l);
  void attend_cache(int64_t l);
  void show_observers(int64_t l);
  void mlp_block(const Layer& layer);
  void run_mlp(const Mlp& mlp, const std::vector<uint16_t>& x, int64_t rows, float* out);
  void mix_experts(const Layer& layer);

  AttentionTap tap(size_t segment, int64_t l) const;
  TensorView hidden_view(std::vector<float>& data) const;
  TensorView rows_view(const std::vector<uint16_t>& data, int64_t columns) const;
  TensorView heads_view(std::vector<uint16_t>& data, int64_t first_row, int64_t rows,
                        int64_t heads) const;

  const Model& model_;
  const ModelSpec& spec_;
  std::span<const Segment> segments_;
  int32_t keys_per_split_;
  int64_t rows_ = 0, q_size_, kv_size_;
  int64_t value_dim_;     // of what attention gives per head
  int64_t latent_start_;  // MLA: columns of qkv_ before the latent
  int64_t out_size_;      // columns that the output projection takes
  std::vector<Group> groups_;
  std::vector<int64_t> first_row_;                        // [segments]
  std::vector<std::vector<std::vector<int64_t>>> slots_;  // [segments][pools of its cache][tokens]
  std::vector<int32_t> positions_;                        // [rows]
  std::vector<float> residual_, block_out_, qkv_, q_up_, gate_up_;
  std::vector<uint16_t> normed_, q_, k_, v_, attended_, expanded_, act_;
  std::vector<float> key_factors_;       // [rows] of dispersed keys; else empty
  std::vector<ForwardKernels> kernels_;  // [segments]
};

}  // namespace kv
