#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kv {

/// How a token is chosen from its logits. Temperature 0 is greedy. Above, it is drawn from the
/// softmax of logits / temperature, cut to the fewest most probable tokens that hold at least the
/// share top_p of it (of equal ones the lowest ids).
struct Sampling {
  double temperature = 0;
  double top_p = 1;

  bool is_greedy() const { return temperature == 0; }
};

/// Throws ValueError for a temperature outside [0, 100], or one above 0 that is below 0.01, and for
/// a top_p outside (0, 1].
void check_sampling(const Sampling& sampling);

/// A chosen token, -1 when some logit is not finite, and by how much it won: the least by which
/// the logit of another token would have to rise for that one to be chosen. Infinite when there
/// was no other.
struct Pick {
  int32_t token = -1;
  double margin = 0;  // nats
};

/// The largest logit; the lowest index wins ties.
Pick pick_greedy(std::span<const float> logits);

/// The random numbers of one generation, the same under every arm: they hang on nothing else.
/// `sample` counts from 1.
uint64_t sample_stream(uint64_t seed, std::string_view document, std::string_view question,
                       int64_t sample);

/// Chooses tokens. Drawing is a race (Gumbel's maximum in another form): token v arrives after
/// -ln(u_v) / p_v, u_v uniform by stream, position and v alone, and the first one is taken. That
/// draws v with probability p_v, and arms with nearly the same logits nearly always take the same
/// token, wherever in the vocabulary the difference lies; an inverse of the cumulative sum would
/// shift every boundary behind it. Exponentials and sums are FP64, in the order of the vocabulary.
class TokenPicker {
 public:
  /// Throws as check_sampling does.
  explicit TokenPicker(const Sampling& sampling = {});

  /// `position` counts the tokens of this generation from 0.
  Pick pick(std::span<const float> logits, uint64_t stream, int64_t position);

 private:
  double weigh(std::span<const float> logits);
  void cut_to_nucleus(double total);

  Sampling sampling_;
  std::vector<double> weights_;  // exp((logit - largest) / temperature)
  std::vector<int32_t> ids_;     // that may be drawn
};

}  // namespace kv
