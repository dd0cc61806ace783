#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kv {

/// How well one hypothesis explains what was served.
struct FingerprintRow {
  size_t hypothesis = 0;      // its number
  double correlation = 0;     // of served and emulated differences
  double gain = 0;            // served over emulated, least squares
  double log_likelihood = 0;  // nats, over "none of these"
  double share = 0;           // of block bootstraps in which it is the best one
  bool is_dropped = false;    // trailed so far that it was not emulated to the end
};

/// What the differences of served logprobs say so far.
struct Fingerprint {
  enum class End {
    kNotQuantized,  // control and candidate differ no more than the control does from itself
    kNamed,         // the first row, safely
    kUndecided,     // the first rows cannot be told apart with so many tokens
    kNoneOfThese    // the differences are not those of any hypothesis
  };
  End end = End::kUndecided;
  int64_t tokens = 0;
  std::vector<FingerprintRow> rows;  // best first
  double rms = 0;                    // of the served differences, nats
  double noise_rms = 0;              // of the control's from itself
  int64_t impossible = 0;            // tokens that a server gave no finite logprob; left out
};

/// Logprobs of the tokens of one text, token 1 first. The differences that matter are candidate
/// less control.
struct FingerprintPiece {
  std::vector<double> control, candidate;         // as served
  std::vector<double> own_control;                // as emulated
  std::vector<std::vector<double>> own_by_index;  // of the hypotheses that live(), in that order
};

/// Collects, text by text, how well each hypothesis explains the served differences.
///
/// Per text the mean and the part that follows the control's own logprob are taken out of served
/// and emulated differences: a server that breaks in a way of its own makes likely tokens unlikely,
/// and so does every hypothesis that breaks the model. Then each token is divided by its
/// sensitivity (the median of what the first six hypotheses change there, half of the text's median
/// at least; these six are never given up) and limited to `kFingerprintClip` root mean squares,
/// because few tokens carry most of the squares. The model: served = gain * emulated + noise,
/// Gaussian, gain >= 0 and noise fitted; without the gain it is "none of these".
class FingerprintEvidence {
 public:
  explicit FingerprintEvidence(size_t hypotheses);

  /// The hypotheses that the next text is to be emulated for, ascending.
  const std::vector<size_t>& live() const { return live_; }

  /// Throws ValueError for sizes that differ.
  void add(const FingerprintPiece& piece);

  /// The control asked twice for one text: what servers differ by without any cause.
  void add_repeat(std::span<const double> first, std::span<const double> second);

  /// What is known now. `is_last`: there is no more text, so that what is not named stays open.
  Fingerprint judge(bool is_last) const;

  /// Gives up hypotheses that trail by `kFingerprintDrop` nats and lead in no bootstrap.
  void drop_hopeless(const Fingerprint& judged);

 private:
  /// Sums of products over one block of tokens: all that a likelihood needs.
  struct Sums {
    double n = 0, dd = 0, dh = 0, hh = 0;
    void add(const Sums& other);
    double gain() const;
    double correlation() const;
    double log_likelihood() const;
  };
  std::vector<double> bootstrap_shares() const;
  void add_blocks(size_t hypothesis, std::span<const double> served,
                  std::span<const double> emulated);

  std::vector<size_t> live_;
  std::vector<std::vector<Sums>> blocks_;  // [hypotheses]
  std::vector<FingerprintRow> dropped_;
  std::vector<double> gaps_;  // of the dropped: how far they trailed when they were
  int64_t tokens_ = 0, impossible_ = 0;
  double squares_ = 0, noise_squares_ = 0;
  int64_t noise_tokens_ = 0;
};

inline constexpr double kFingerprintClip = 4;
inline constexpr double kFingerprintShare = 0.95;
inline constexpr double kFingerprintDrop = 25;
inline constexpr double kFingerprintLead = 7;  // nats over the next one: a thousand to one

}  // namespace kv
