#include "model/model.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "kvscale/error.h"
#include "model/forward_pass.h"
#include "model/weights.h"
#include "ops/soft_cap.h"

namespace kv {
namespace {

/// One pass, whichever the model: it takes all threads, and matmul finds out about shapes as it
/// meets them.
std::unique_lock<std::mutex> all_threads() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

}  // namespace

std::shared_ptr<const Model> Model::load(std::shared_ptr<const Checkpoint> checkpoint,
                                         const std::function<void(double)>& progress) {
  const auto lock = all_threads();
  std::shared_ptr<Model> model(new Model);
  model->weights_ = Weights::read(*checkpoint, progress);
  model->weight_bytes_ = model->weights_->packed_bytes(checkpoint->spec());
  model->checkpoint_ = std::move(checkpoint);
  return model;
}

std::vector<LayerGeometry> layer_geometry(const ModelSpec& spec) {
  std::vector<LayerGeometry> out;
  for (int layer = 0; layer < spec.num_layers; ++layer)
    out.push_back({spec.num_kv_heads, spec.head_dim, spec.window(layer),
                   spec.latent ? spec.latent->kv_rank : 0});
  return out;
}

std::vector<LayerGeometry> Model::geometry() const { return layer_geometry(spec()); }

float Model::softmax_scale() const { return static_cast<float>(spec().score_scale()); }

std::shared_ptr<const Model> Model::with_key_offset(int64_t layer,
                                                    std::vector<float> offset) const {
  if (spec().latent) throw ValueError("key offset: of a latent, V would have it too");
  if (layer < 0 || layer >= spec().num_layers ||
      std::ssize(offset) != spec().num_kv_heads * spec().head_dim) {
    throw ValueError(fmt::format(
        "key offset: expected a layer below {} and {} values, found layer {} and {}",
        spec().num_layers, spec().num_kv_heads * spec().head_dim, layer, offset.size()));
  }
  std::shared_ptr<Model> planted(new Model(*this));
  planted->key_offsets_[layer] = std::move(offset);
  return planted;
}

std::shared_ptr<const Model> Model::with_token_dispersion(TokenDispersion dispersion) const {
  if (spec().latent) throw ValueError("token dispersion: of a latent, V would have it too");
  std::shared_ptr<Model> planted(new Model(*this));
  planted->dispersion_ = std::move(dispersion);
  return planted;
}

std::vector<LayerFormat> Model::cache_formats(std::vector<LayerFormat> asked) const {
  return dispersion_ ? TokenDispersion::page_formats(std::move(asked)) : asked;
}

HiddenStates Model::forward(std::span<const Segment> segments, int32_t keys_per_split,
                            std::vector<ForwardKernels>* kernels) const {
  const auto lock = all_threads();
  ForwardPass pass(*this, segments, keys_per_split);
  HiddenStates hidden = pass.run();
  if (kernels != nullptr) *kernels = pass.kernels();
  return hidden;
}

double Model::time_matmuls(int64_t rows, double& flops) const {
  const auto lock = all_threads();
  int64_t widest_in = 0, widest_out = 0;
  std::vector<const PackedMatrix*> matrices;
  for (const Layer& layer : weights_->layers) {
    for (const PackedMatrix* m : layer.matrices(spec(), true)) {
      matrices.push_back(m);
      widest_in = std::max(widest_in, m->in_features());
      widest_out = std::max(widest_out, m->out_features());
    }
  }
  std::vector<uint16_t> x(static_cast<size_t>(rows * widest_in));
  std::vector<float> y(static_cast<size_t>(rows * widest_out));
  flops = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const PackedMatrix* m : matrices) {
    matmul(*m, TensorView::contiguous(x.data(), DType::kBF16, {rows, m->in_features()}),
           TensorView::contiguous(y.data(), DType::kF32, {rows, m->out_features()}));
    flops += 2.0 * static_cast<double>(rows * m->in_features() * m->out_features());
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  const auto lock = all_threads();
  const int64_t count = std::ssize(rows);
  const TensorView y = TensorView::contiguous(out, DType::kF32, {count, spec().vocab_size});
  matmul(weights_->head, TensorView::contiguous(x.data(), DType::kBF16, {count, size}), y);
  if (spec().logit_soft_cap > 0) soft_cap(y, static_cast<float>(spec().logit_soft_cap));
}

}  // namespace kv
