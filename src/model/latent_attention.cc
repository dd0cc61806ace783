// Attention over latents (MLA) in the absorbed form: each head's query goes through its key
// projection to the latent's side once, so that keys and values of the heads are never built.

#include "model/forward_pass.h"
#include "numeric/bulk.h"
#include "ops/rms_norm.h"

namespace kv {
namespace {

// Of the latents' norms, as transformers has it whatever rms_norm_eps is.
constexpr float kLatentNormEps = 1e-6f;

/// Columns [first, first + heads * size) of rows [rows, columns], with the heads apart.
TensorView columns(float* data, int64_t rows, int64_t stride, int64_t heads, int64_t size) {
  TensorView view = TensorView::contiguous(data, DType::kF32, {rows, heads, size});
  view.strides[0] = stride;
  return view;
}

/// `size` values of each of the heads [rows, heads, width] from value `first` on.
TensorView part_of_heads(uint16_t* data, int64_t rows, int64_t heads, int64_t width, int64_t first,
                         int64_t size) {
  TensorView view = TensorView::contiguous(data + first, DType::kBF16, {rows, heads, width});
  view.sizes[2] = size;
  return view;
}

}  // namespace

void Model::ForwardPass::project_latents(const Layer& layer) {
  const LatentSpec& latent = *spec_.latent;
  const int64_t head = latent.nope_dim + latent.rope_dim, heads = spec_.num_q_heads;
  const int64_t size = layer.qkv.out_features();
  const KernelUsed used = matmul(layer.qkv, rows_view(normed_, spec_.hidden_size),
                                 TensorView::contiguous(qkv_.data(), DType::kF32, {rows_, size}));
  for (ForwardKernels& kernels : kernels_) kernels.matmul.insert(used.name);

  TensorView c =
      TensorView::contiguous(qkv_.data() + latent_start_, DType::kF32, {rows_, latent.kv_rank});
  c.strides[0] = size;
  TensorView stored = TensorView::contiguous(k_.data(), DType::kBF16, {rows_, kv_size_});
  stored.sizes[1] = latent.kv_rank;
  rms_norm(c, layer.latent_norm, kLatentNormEps, stored);
  rope(columns(qkv_.data() + latent_start_ + latent.kv_rank, rows_, size, 1, latent.rope_dim), {},
       positions_, *layer.rope,
       part_of_heads(k_.data(), rows_, 1, kv_size_, latent.kv_rank, latent.rope_dim));

  if (layer.q_latent_norm.empty()) {
    absorb_queries(layer, columns(qkv_.data(), rows_, size, heads, head));
    return;
  }
  std::vector<uint16_t> q_latent(static_cast<size_t>(rows_ * latent.q_rank));
  TensorView q = TensorView::contiguous(qkv_.data(), DType::kF32, {rows_, latent.q_rank});
  q.strides[0] = size;
  rms_norm(q, layer.q_latent_norm, kLatentNormEps, rows_view(q_latent, latent.q_rank));
  matmul(layer.q_up, rows_view(q_latent, latent.q_rank),
         TensorView::contiguous(q_up_.data(), DType::kF32, {rows_, heads * head}));
  absorb_queries(layer, columns(q_up_.data(), rows_, heads * head, heads, head));
}

void Model::ForwardPass::absorb_queries(const Layer& layer, const TensorView& q) {
  const LatentSpec& latent = *spec_.latent;
  const int64_t heads = spec_.num_q_heads, width = spec_.head_dim;
  TensorView turning = q;
  turning.data = q.as<float>() + latent.nope_dim;
  turning.sizes[2] = latent.rope_dim;
  rope(turning, {}, positions_, *layer.rope,
       part_of_heads(q_.data(), rows_, heads, width, latent.kv_rank, latent.rope_dim));
  std::vector<uint16_t> x(static_cast<size_t>(rows_ * latent.nope_dim));
  std::vector<float> y(static_cast<size_t>(rows_ * latent.kv_rank));
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t r = 0; r < rows_; ++r) {
      bf16_encode(q.as<const float>() + r * q.strides[0] + h * q.strides[1],
                  x.data() + r * latent.nope_dim, static_cast<size_t>(latent.nope_dim));
    }
    matmul(layer.key_up[static_cast<size_t>(h)], rows_view(x, latent.nope_dim),
           TensorView::contiguous(y.data(), DType::kF32, {rows_, latent.kv_rank}));
    for (int64_t r = 0; r < rows_; ++r) {
      bf16_encode(y.data() + r * latent.kv_rank, q_.data() + (r * heads + h) * width,
                  static_cast<size_t>(latent.kv_rank));
    }
  }
}

void Model::ForwardPass::expand_values(const Layer& layer, const TensorView& attended,
                                       uint16_t* out) const {
  const LatentSpec& latent = *spec_.latent;
  const int64_t rows = attended.sizes[0], heads = spec_.num_q_heads;
  std::vector<uint16_t> x(static_cast<size_t>(rows * latent.kv_rank));
  std::vector<float> y(static_cast<size_t>(rows * latent.value_dim));
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(attended.as<const uint16_t>() + r * attended.strides[0] + h * attended.strides[1],
                  latent.kv_rank, x.data() + r * latent.kv_rank);
    }
    matmul(layer.value_up[static_cast<size_t>(h)],
           TensorView::contiguous(x.data(), DType::kBF16, {rows, latent.kv_rank}),
           TensorView::contiguous(y.data(), DType::kF32, {rows, latent.value_dim}));
    for (int64_t r = 0; r < rows; ++r) {
      bf16_encode(y.data() + r * latent.value_dim, out + (r * heads + h) * latent.value_dim,
                  static_cast<size_t>(latent.value_dim));
    }
  }
}

}  // namespace kv
