// The feed-forward half of a layer: one network, or a mixture of experts.

#include "model/experts.h"
#include "model/forward_pass.h"
#include "ops/add.h"
#include "ops/gelu_tanh_mul.h"
#include "ops/rms_norm.h"
#include "ops/silu_mul.h"

namespace kv {

void Model::ForwardPass::mlp_block(const Layer& layer) {
  rms_norm(hidden_view(residual_), layer.mlp_norm, static_cast<float>(spec_.rms_norm_eps),
           rows_view(normed_, spec_.hidden_size));
  if (layer.has_experts) {
    mix_experts(layer);
  } else {
    run_mlp(layer.mlps[0], normed_, rows_, block_out_.data());
  }
  norm_block_out(layer.mlp_post);
  add_residual(hidden_view(block_out_), {}, hidden_view(residual_));
}

void Model::ForwardPass::run_mlp(const Mlp& mlp, const std::vector<uint16_t>& x, int64_t rows,
                                 float* out) {
  const int64_t inner = mlp.down.in_features();
  const TensorView gate_up =
      TensorView::contiguous(gate_up_.data(), DType::kF32, {rows, 2 * inner});
  const TensorView act = TensorView::contiguous(act_.data(), DType::kBF16, {rows, inner});
  matmul(mlp.gate_up, TensorView::contiguous(x.data(), DType::kBF16, {rows, spec_.hidden_size}),
         gate_up);
  spec_.activation == Activation::kGeluTanh ? gelu_tanh_mul(gate_up, act) : silu_mul(gate_up, act);
  matmul(mlp.down, act, TensorView::contiguous(out, DType::kF32, {rows, spec_.hidden_size}));
}

void Model::ForwardPass::mix_experts(const Layer& layer) {
  const int64_t hidden = spec_.hidden_size, experts = spec_.num_experts;
  std::vector<float> scores(static_cast<size_t>(rows_ * experts));
  matmul(layer.router, rows_view(normed_, hidden),
         TensorView::contiguous(scores.data(), DType::kF32, {rows_, experts}));
  const std::vector<std::vector<ExpertRow>> shares =
      share_rows(scores, experts, spec_.experts_per_token, spec_.renormalizes_experts,
                 {spec_.expert_groups, spec_.groups_per_token});
  const auto scale = static_cast<float>(spec_.experts_scale);
  std::ranges::fill(block_out_, 0.0f);
  std::vector<uint16_t> x;
  std::vector<float> y;
  // In the order of the experts: a row's sum does not depend on the other rows.
  for (size_t expert = 0; expert < shares.size(); ++expert) {
    const std::vector<ExpertRow>& mine = shares[expert];
    if (mine.empty()) continue;
    x.clear();
    for (const ExpertRow& share : mine) {
      x.insert(x.end(), normed_.begin() + share.row * hidden,
               normed_.begin() + (share.row + 1) * hidden);
    }
    y.resize(x.size());
    run_mlp(layer.mlps[expert], x, std::ssize(mine), y.data());
    for (size_t i = 0; i < mine.size(); ++i) {
      float* out = block_out_.data() + mine[i].row * hidden;
      const float* in = y.data() + static_cast<int64_t>(i) * hidden;
      const float weight = mine[i].weight * scale;
      for (int64_t d = 0; d < hidden; ++d) out[d] += weight * in[d];
    }
  }
  if (!layer.shared) return;
  y.resize(block_out_.size());
  run_mlp(*layer.shared, normed_, rows_, y.data());
  for (size_t i = 0; i < y.size(); ++i) block_out_[i] += y[i];
}

}  // namespace kv
