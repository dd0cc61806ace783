#include "model/model.h"

#include <fmt/core.h>

#include <cmath>

#include "kvscale/error.h"
#include "model/forward_pass.h"
#include "model/weights.h"

namespace kv {

std::shared_ptr<const Model> Model::load(std::shared_ptr<const Checkpoint> checkpoint,
                                         const std::function<void(double)>& progress) {
  std::shared_ptr<Model> model(new Model);
  model->weights_ = Weights::read(*checkpoint, progress);
  model->weight_bytes_ = model->weights_->packed_bytes();
  model->checkpoint_ = std::move(checkpoint);
  return model;
}

std::vector<LayerGeometry> Model::geometry() const {
  return std::vector<LayerGeometry>(static_cast<size_t>(spec().num_layers),
                                    LayerGeometry{spec().num_kv_heads, spec().head_dim, 0});
}

float Model::softmax_scale() const {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec().head_dim)));
}

HiddenStates Model::forward(std::span<const Segment> segments, int32_t keys_per_split,
                            std::vector<ForwardKernels>* kernels) const {
  ForwardPass pass(*this, segments, keys_per_split);
  HiddenStates hidden = pass.run();
  if (kernels != nullptr) *kernels = pass.kernels();
  return hidden;
}

void Model::logits(const HiddenStates& hidden, std::span<const int64_t> rows, float* out) const {
  const int64_t size = spec().hidden_size;
  std::vector<uint16_t> x;
  for (const int64_t row : rows) {
    if (row < 0 || row >= hidden.rows()) {
      throw ValueError(
          fmt::format("logits: row: expected 0 to {}, found {}", hidden.rows() - 1, row));
    }
    x.insert(x.end(), hidden.normed_.begin() + row * size,
             hidden.normed_.begin() + (row + 1) * size);
  }
  matmul(weights_->head, TensorView::contiguous(x.data(), DType::kBF16, {std::ssize(rows), size}),
         TensorView::contiguous(out, DType::kF32, {std::ssize(rows), spec().vocab_size}));
}

}  // namespace kv
