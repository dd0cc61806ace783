#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/scale_table.h"
#include "checkpoint/checkpoint.h"
#include "model/stored_values.h"
#include "model/tap.h"
#include "model/token_dispersion.h"
#include "numeric/rounding.h"
#include "ops/attend.h"
#include "ops/store_kv.h"

namespace kv {

/// Some consecutive new tokens of one sequence. Its block table has room for them already.
struct Segment {
  std::span<const int32_t> tokens;
  int64_t first_position = 0;          // tokens that are in the cache before these
  const BlockTable* table = nullptr;   // the sequence's blocks in the arm's cache, new ones too
  const ScaleTable* scales = nullptr;  // the arm's static scales; null when no layer needs one
  Rounding rounding = Rounding::kNearestEven;
  StoredValues values = StoredValues::kOfFormat;
  int64_t sink = 0;  // first positions whose values are those of the format all the same
  // [num_layers]: sides that are not FP8 here are not rounded to `values`; empty: all are.
  std::span<const LayerFormat> rounded;
  Math math = Math::kBf16;
  std::span<const LayerFormat> asked;  // [num_layers] by the arm; read where keys are dispersed
  int64_t sequence = 0;                // the caller's number, passed on to the observer
  AttentionObserver* observer = nullptr;
  StoreCounts* counts = nullptr;  // [num_layers], added to; may be null
};

/// What really ran for one segment over all layers, each name once.
struct ForwardKernels {
  std::set<std::string> store_kv, attend, matmul;
};

/// Final hidden states, ready for logits.
class HiddenStates {
 public:
  int64_t rows() const { return rows_; }

  /// The row of a segment's token, counted within this pass.
  int64_t row(size_t segment, int64_t token) const { return first_row_.at(segment) + token; }

 private:
  friend class Model;
  int64_t rows_ = 0;
  std::vector<int64_t> first_row_;  // [segments]
  std::vector<uint16_t> normed_;    // [rows, hidden] bf16
};

/// What the cache arithmetic needs of each layer.
std::vector<LayerGeometry> layer_geometry(const ModelSpec& spec);

/// A decoder of any architecture that a ModelSpec can state: weights packed for this machine, no
/// state of any sequence. Any thread may call; passes run one after the other, since each takes all
/// processors.
class Model {
 public:
  /// Packs all weights; `progress` (may be null) is told the share done, 0 to 1.
  static std::shared_ptr<const Model> load(std::shared_ptr<const Checkpoint> checkpoint,
                                           const std::function<void(double)>& progress = {});

  const ModelSpec& spec() const { return checkpoint_->spec(); }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  std::vector<LayerGeometry> geometry() const;
  float softmax_scale() const;
  int64_t weight_bytes() const { return weight_bytes_; }

  /// The same model with a constant vector [num_kv_heads * head_dim] added to every key of one
  /// layer, after RoPE: the
  /// softmax does not see it, storage does. Plants a known damage in tests of the method (a layer
  /// whose precision an offset takes).
  std::shared_ptr<const Model> with_key_offset(int64_t layer, std::vector<float> offset) const;

  /// The same model with the keys of every layer dispersed over the tokens (token_dispersion.h).
  /// Caches of it have the formats that cache_formats() says.
  std::shared_ptr<const Model> with_token_dispersion(TokenDispersion dispersion) const;

  /// The formats of pages in which an arm's layers are stored: those that it asks for, unless keys
  /// are dispersed.
  std::vector<LayerFormat> cache_formats(std::vector<LayerFormat> asked) const;

  /// Runs the new tokens of all segments through all layers: stores keys and values in each
  /// segment's cache and attends to what the cache gives back. A segment's result is the same bits
  /// whatever the other segments are and however its sequence is cut into chunks. `keys_per_split`
  /// as in AttendParams.
  HiddenStates forward(std::span<const Segment> segments, int32_t keys_per_split = 0,
                       std::vector<ForwardKernels>* kernels = nullptr) const;

  /// Seconds that the linear layers of all layers take for `rows` rows of zeros, nothing else (of
  /// experts as many as work on one token);
  /// `flops` gets what they did.
  /// The limit that a prefill is held against.
  double time_matmuls(int64_t rows, double& flops) const;

  /// Logits of some rows of the hidden states: out [rows.size(), vocab_size] f32.
  void logits(const HiddenStates& hidden, std::span<const int64_t> rows, float* out) const;

 private:
  struct Layer;
  struct Weights;
  class ForwardPass;
  Model() = default;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const Weights> weights_;
  int64_t weight_bytes_ = 0;
  std::map<int64_t, std::vector<float>> key_offsets_;  // layer -> what with_key_offset added
  std::optional<TokenDispersion> dispersion_;
};

}  // namespace kv
