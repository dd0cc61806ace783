// What an observer of attention is shown, and what the forward pass refuses.

#include <gtest/gtest.h>

#include <cstring>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "stats/splitmix64.h"
#include "tests/model/one_sequence.h"

namespace kv {
namespace {

constexpr int64_t kLayers = 6, kQHeads = 4, kKvHeads = 2, kHeadDim = 64, kHidden = 256;

std::shared_ptr<const Model> tiny() {
  static const auto model = load_model(KV_SOURCE_DIR "/models/tiny");
  return model;
}

std::vector<int32_t> some_tokens(int64_t count) {
  SplitMix64 random(5);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int32_t>(3 + random.below(1021)));
  return out;
}

/// All that was shown, one call after another per layer.
class Recorder : public AttentionObserver {
 public:
  struct Layer {
    int64_t tokens = 0;
    std::vector<uint16_t> q, k, v;
    std::vector<float> residual, block_out;
    bool operator==(const Layer&) const = default;
  };

  void on_attention(const AttentionTap& tap) override {
    ASSERT_EQ(tap.layer, static_cast<int64_t>(order_.size()) % kLayers);
    ASSERT_EQ(tap.sequence, 7);
    ASSERT_EQ(tap.hidden_size, kHidden);
    order_.push_back(tap.layer);
    Layer& layer = layers_[static_cast<size_t>(tap.layer)];
    ASSERT_EQ(tap.first_position, layer.tokens);
    layer.tokens += tap.num_tokens;
    const auto add = [&](auto& to, const auto* from, int64_t columns) {
      to.insert(to.end(), from, from + tap.num_tokens * columns);
    };
    add(layer.q, tap.q, tap.num_q_heads * tap.head_dim);
    add(layer.k, tap.k, tap.num_kv_heads * tap.head_dim);
    add(layer.v, tap.v, tap.num_kv_heads * tap.head_dim);
    add(layer.residual, tap.residual, kHidden);
    add(layer.block_out, tap.block_out, kHidden);
  }

  const std::vector<Layer>& layers() const { return layers_; }

 private:
  std::vector<Layer> layers_ = std::vector<Layer>(kLayers);
  std::vector<int64_t> order_;
};

TEST(AttentionObserver, SeesEveryTokenOfEveryLayerHoweverThePromptIsCut) {
  const std::vector<int32_t> tokens = some_tokens(90);
  Recorder whole, pieces;
  OneSequence(tiny(), 90).feed(tokens, &whole);
  OneSequence cut(tiny(), 90);
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 40}, {41, 49}})
    cut.feed(std::span(tokens).subspan(first, count), &pieces);
  for (const Recorder::Layer& layer : whole.layers()) EXPECT_EQ(layer.tokens, 90);
  EXPECT_TRUE(whole.layers() == pieces.layers());
}

TEST(AttentionObserver, ShowsTheKeysAndValuesThatAreStored) {
  const std::vector<int32_t> tokens = some_tokens(70);
  Recorder seen;
  OneSequence sequence(tiny(), 70);
  sequence.feed(tokens, &seen);
  for (int64_t l = 0; l < kLayers; ++l) {
    const CacheView& view = sequence.cache().layer(l);
    const Recorder::Layer& layer = seen.layers()[static_cast<size_t>(l)];
    for (size_t i = 0; i < layer.k.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t token = at / (kKvHeads * kHeadDim), head = at / kHeadDim % kKvHeads;
      const uint8_t* page = view.block(
          sequence.table().blocks()[static_cast<size_t>(token / OneSequence::kBlockSize)]);
      const auto stored = [&](Side side) {
        uint16_t value;
        std::memcpy(
            &value,
            page + view.page.side(side).byte(head, token % OneSequence::kBlockSize, at % kHeadDim),
            sizeof(value));
        return value;
      };
      ASSERT_EQ(stored(Side::kK), layer.k[i]) << "layer " << l << " value " << i;
      ASSERT_EQ(stored(Side::kV), layer.v[i]) << "layer " << l << " value " << i;
    }
  }
}

double rms(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

/// Attention of the last of the shown tokens, in double: [num_q_heads * head_dim].
std::vector<float> attention_of_last(const AttentionTap& tap) {
  std::vector<float> out;
  const int64_t group = tap.num_q_heads / tap.num_kv_heads, last = tap.num_tokens - 1;
  for (int64_t head = 0; head < tap.num_q_heads; ++head) {
    const uint16_t* q = tap.q + (last * tap.num_q_heads + head) * tap.head_dim;
    const auto row = [&](const uint16_t* base, int64_t t) {
      return base + (t * tap.num_kv_heads + head / group) * tap.head_dim;
    };
    std::vector<double> sum(static_cast<size_t>(tap.head_dim));
    double total = 0;
    for (int64_t t = 0; t <= last; ++t) {
      double score = 0;
      for (int64_t d = 0; d < tap.head_dim; ++d)
        score += double{bf16::decode(q[d])} * bf16::decode(row(tap.k, t)[d]);
      const double weight = std::exp(score * tap.softmax_scale);
      total += weight;
      for (int64_t d = 0; d < tap.head_dim; ++d)
        sum[static_cast<size_t>(d)] += weight * bf16::decode(row(tap.v, t)[d]);
    }
    for (const double x : sum) out.push_back(static_cast<float>(x / total));
  }
  return out;
}

/// Projects the attention of what it is shown and compares with the block's output.
class Projector : public AttentionObserver {
 public:
  void on_attention(const AttentionTap& tap) override {
    std::vector<float> projected(kHidden);
    tap.project(attention_of_last(tap).data(), 1, projected.data());
    std::vector<double> output, difference;
    for (int64_t i = 0; i < kHidden; ++i) {
      const float block_out = tap.block_out[(tap.num_tokens - 1) * kHidden + i];
      output.push_back(block_out);
      difference.push_back(block_out - projected[static_cast<size_t>(i)]);
    }
    // Both round the attention to BF16, 2^-9 relative, but not all values to the same side.
    EXPECT_LT(rms(difference), rms(output) * 0x1p-8) << "layer " << tap.layer;
    EXPECT_GT(rms(output), 0) << "layer " << tap.layer;
    ++layers;
  }
  int layers = 0;
};

TEST(AttentionObserver, ShownQueriesKeysAndValuesGiveTheBlocksOutput) {
  Projector projector;
  OneSequence(tiny(), 80).feed(some_tokens(80), &projector);
  EXPECT_EQ(projector.layers, kLayers);
}

template <class E, class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ModelForward, RefusesTokensOutsideTheVocabulary) {
  for (const int32_t token : {-1, 1024}) {
    const std::string text = message_of<ValueError>([&] {
      OneSequence(tiny(), 1).feed({&token, 1});
    });
    EXPECT_EQ(text, "token id: expected 0 to 1023, found " + std::to_string(token));
  }
}

TEST(ModelForward, RefusesTokensWithoutRoom) {
  const std::vector<int32_t> tokens = {5, 6};
  KvCache cache(tiny()->geometry(), std::vector<LayerFormat>(tiny()->geometry().size()), 16, 1,
                PageOrder::kCpu);
  BlockTable table(cache);
  table.append(1);
  Segment segment;
  segment.tokens = tokens;
  segment.table = &table;
  EXPECT_EQ(message_of<ShapeError>([&] {
              tiny()->forward({&segment, 1});
            }),
            "forward: segment 0: tokens up to 2 but room for 1");
}

TEST(ModelLogits, RefusesRowsThatAreNotThere) {
  const HiddenStates none;
  const int64_t row = 0;
  std::vector<float> out(1024);
  EXPECT_EQ(message_of<ValueError>([&] {
              tiny()->logits(none, {&row, 1}, out.data());
            }),
            "logits: row: expected 0 to -1, found 0");
}

}  // namespace
}  // namespace kv
