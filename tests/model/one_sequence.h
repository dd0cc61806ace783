#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "model/model.h"

namespace kv {

inline std::shared_ptr<const Model> load_model(const std::filesystem::path& path) {
  return Model::load(Checkpoint::open(path));
}

/// A model with a cache in BF16 for one sequence.
class OneSequence {
 public:
  static constexpr int64_t kBlockSize = 64;

  OneSequence(std::shared_ptr<const Model> model, int64_t max_tokens)
      : model_(std::move(model)),
        cache_(model_->geometry(), std::vector<LayerFormat>(model_->geometry().size()), kBlockSize,
               (max_tokens + kBlockSize - 1) / kBlockSize, PageOrder::kCpu),
        table_(cache_) {}

  /// Logits [tokens, vocab_size] of the next tokens.
  std::vector<float> feed(std::span<const int32_t> tokens, AttentionObserver* observer = nullptr) {
    const int64_t first = table_.seq_len();
    table_.append(std::ssize(tokens));
    Segment segment;
    segment.tokens = tokens;
    segment.first_position = first;
    segment.table = &table_;
    segment.sequence = 7;
    segment.observer = observer;
    const HiddenStates hidden = model_->forward({&segment, 1});
    std::vector<int64_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), hidden.row(0, 0));
    std::vector<float> out(tokens.size() * static_cast<size_t>(model_->spec().vocab_size));
    model_->logits(hidden, rows, out.data());
    return out;
  }

  const KvCache& cache() const { return cache_; }
  const BlockTable& table() const { return table_; }

 private:
  std::shared_ptr<const Model> model_;
  KvCache cache_;
  BlockTable table_;
};

}  // namespace kv
