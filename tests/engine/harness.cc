#include "tests/engine/harness.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <stdexcept>

#include "numeric/bf16.h"
#include "stats/splitmix64.h"

namespace kv::engine_test {
namespace {

constexpr float kLargestCode = 448;

/// Largest magnitudes of what is stored, [layers][sides][heads].
class Amax : public AttentionObserver {
 public:
  explicit Amax(const ModelSpec& spec)
      : heads_(spec.num_kv_heads), values_(static_cast<size_t>(spec.num_layers * 2 * heads_)) {}

  void on_attention(const AttentionTap& tap) override {
    for (const Side side : kSides) {
      const uint16_t* x = side == Side::kK ? tap.k : tap.v;
      for (int64_t i = 0; i < tap.num_tokens * heads_ * tap.head_dim; ++i) {
        float& amax = values_[index(tap.layer, side, i / tap.head_dim % heads_)];
        amax = std::max(amax, std::abs(bf16::decode(x[i])));
      }
    }
  }

  float head(int64_t layer, Side side, int64_t head) const {
    return values_[index(layer, side, head)];
  }
  float all_heads(int64_t layer, Side side) const {
    const auto begin = values_.begin() + static_cast<std::ptrdiff_t>(index(layer, side, 0));
    return *std::max_element(begin, begin + heads_);
  }

 private:
  size_t index(int64_t layer, Side side, int64_t head) const {
    return static_cast<size_t>((layer * 2 + static_cast<int64_t>(side)) * heads_ + head);
  }
  int64_t heads_;
  std::vector<float> values_;
};

}  // namespace

std::shared_ptr<const Model> tiny_model() {
  static const auto model = Model::load(Checkpoint::open(KV_SOURCE_DIR "/models/tiny"));
  return model;
}

std::vector<int32_t> some_tokens(uint64_t seed, int64_t count) {
  SplitMix64 random(seed);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int32_t>(3 + random.below(1021)));
  return out;
}

ScaleTable calibrate(const std::shared_ptr<const Model>& model, std::span<const int32_t> tokens,
                     bool is_per_head) {
  const ModelSpec& spec = model->spec();
  Engine engine(model);
  engine.add_arm(ArmSpec{}, std::nullopt, std::ssize(tokens));
  Sequence sequence = engine.start(0);
  Amax amax(spec);
  const Request request{&sequence, tokens, -1, &amax};
  engine.run({&request, 1});
  ScaleTable table(spec.num_layers, spec.num_kv_heads, "calibrated in a test");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    for (const Side side : kSides) {
      for (int64_t head = 0; head < spec.num_kv_heads; ++head) {
        const float largest =
            is_per_head ? amax.head(layer, side, head) : amax.all_heads(layer, side);
        table.set(layer, side, head, bf16::round_up(largest / kLargestCode));
      }
    }
  }
  return table;
}

const ScaleTable& tiny_scales(bool is_per_head) {
  static const auto tokens = some_tokens(1, 256);
  static const ScaleTable per_tensor = calibrate(tiny_model(), tokens, false);
  static const ScaleTable per_head = calibrate(tiny_model(), tokens, true);
  return is_per_head ? per_head : per_tensor;
}

std::optional<ScaleTable> scales_for(const ArmSpec& spec) {
  if (!spec.needs_scales()) return std::nullopt;
  return tiny_scales(spec.layout == ArmLayout::kFp8Head);
}

int add_arm(Engine& engine, const std::string& text, int64_t capacity_tokens) {
  const ArmSpec spec = ArmSpec::parse(text);
  return engine.add_arm(spec, scales_for(spec), capacity_tokens);
}

std::vector<Logits> run(Engine& engine, const std::vector<Feed>& feeds) {
  const auto vocab = static_cast<size_t>(engine.model().spec().vocab_size);
  std::vector<Logits> out;
  std::vector<Request> requests;
  for (const Feed& feed : feeds) {
    requests.push_back({feed.sequence, feed.tokens, 0, nullptr});
    // No logit is this number: a row that never came differs from every other.
    out.emplace_back(feed.tokens.size() * vocab, -1e30f);
  }
  engine.run(requests, [&](std::span<const LogitRow> rows) {
    for (const LogitRow& row : rows) {
      std::ranges::copy(
          row.logits, out.at(row.request).begin() + static_cast<std::ptrdiff_t>(row.token * vocab));
    }
  });
  return out;
}

Logits run(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens) {
  return run(engine, {{&sequence, tokens}}).front();
}

Logits run_alone(const std::string& arm, std::span<const int32_t> tokens, BatchPlan plan) {
  Engine engine(tiny_model(), plan);
  Sequence sequence = engine.start(add_arm(engine, arm, std::ssize(tokens)));
  return run(engine, sequence, tokens);
}

std::vector<Logits> run_together(const std::vector<std::string>& arms,
                                 std::span<const int32_t> tokens, BatchPlan plan) {
  Engine engine(tiny_model(), plan);
  std::vector<Sequence> sequences;
  for (const std::string& arm : arms)
    sequences.push_back(engine.start(add_arm(engine, arm, std::ssize(tokens))));
  std::vector<Feed> feeds;
  for (Sequence& sequence : sequences) feeds.push_back({&sequence, tokens});
  return run(engine, feeds);
}

std::string difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return fmt::format("{} values and {}", a.size(), b.size());
  size_t count = 0, first = 0;
  for (size_t i = a.size(); i-- > 0;) {
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    ++count;
    first = i;
  }
  if (count == 0) return "";
  return fmt::format("{} of {} values differ, the first at {}: {} and {}", count, a.size(), first,
                     a[first], b[first]);
}

double rms_distance(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) throw std::runtime_error("rms_distance: sizes differ");
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

}  // namespace kv::engine_test
