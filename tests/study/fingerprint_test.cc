// What a server really stores, told from its logprobs alone.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "checkpoint/load_tokenizer.h"
#include "kvscale/error.h"
#include "study/own_text.h"
#include "study/served_fingerprint.h"
#include "tests/study/model_server.h"

namespace kv::fingerprint_test {
namespace {

using End = Fingerprint::End;
using testing::ModelServer;

std::shared_ptr<const Model> tiny() {
  static const auto model =
      Model::load(Checkpoint::open(std::filesystem::path(KV_SOURCE_DIR) / "models/tiny"));
  return model;
}

std::vector<std::vector<int32_t>> pieces_of_own_text(int64_t piece_tokens, int64_t budget) {
  const Tokenizer tokenizer = load_tokenizer(tiny()->checkpoint());
  const std::vector<std::vector<int32_t>> texts = {tokenizer.encode(own_text())};
  return fingerprint_pieces(texts, tokenizer.prefix_ids(), piece_tokens, budget);
}

/// Scales of the built-in model's size in which no two are alike: what a fault moves is seen.
ExpectedScales some_scales() {
  const ModelSpec& spec = tiny()->spec();
  ExpectedScales out;
  out.is_collapsed = true;
  out.tensor.emplace(spec.num_layers, spec.num_kv_heads, "test");
  out.head.emplace(spec.num_layers, spec.num_kv_heads, "test");
  std::mt19937_64 random(7);
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    for (const Side side : kSides) {
      float largest = 0;
      for (int64_t h = 0; h < spec.num_kv_heads; ++h) {
        const float scale = 0.02f + 0.02f * static_cast<float>(random() % 1000) / 1000;
        out.head->set(l, side, h, scale);
        largest = std::max(largest, scale);
      }
      out.tensor->set_all_heads(l, side, largest);
    }
  }
  return out;
}

std::vector<size_t> all_of(const std::vector<Hypothesis>& hypotheses) {
  std::vector<size_t> out(hypotheses.size());
  std::iota(out.begin(), out.end(), size_t{0});
  return out;
}

size_t number_of(const std::vector<Hypothesis>& hypotheses, const std::string& name) {
  const auto found = std::ranges::find(hypotheses, name, &Hypothesis::name);
  EXPECT_NE(found, hypotheses.end()) << name;
  return static_cast<size_t>(found - hypotheses.begin());
}

// ---- hypotheses ----

TEST(FingerprintHypotheses, EveryNameOnceAndEveryScaleWhereOneIsNeeded) {
  const auto all = fingerprint_hypotheses(some_scales()), none = fingerprint_hypotheses({});
  std::set<std::string> names;
  for (const Hypothesis& one : all) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_EQ(one.arm.needs_scales(), one.scales.has_value()) << one.name;
  }
  for (const char* name :
       {"scale 1.0", "one scale per tensor, the largest of its heads', truncated, queries in FP8",
        "one scale per head, truncated", "one scale per token and head",
        "E5M2 with scale 1.0, truncated", "scales of K and V swapped in the even layers",
        "the first head's scale for all heads", "reciprocal scales, truncated"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(none.size(), 8u);  // without scales only what has none: 4, and E5M2 and inline, twice
}

TEST(FingerprintHypotheses, WhatIsTheSameIsOneHypothesis) {
  ExpectedScales ones;
  ones.tensor.emplace(4, 2, "all are 1");
  const auto all = fingerprint_hypotheses(ones);
  EXPECT_EQ(all.size(), fingerprint_hypotheses({}).size());
  EXPECT_EQ(all[0].name.find("scale 1.0 or one scale per tensor"), 0u) << all[0].name;
}

TEST(FingerprintHypotheses, FaultsMoveTheScalesThatTheyName) {
  const ExpectedScales expected = some_scales();
  const auto all = fingerprint_hypotheses(expected);
  const auto scale = [&](const std::string& name, int64_t layer, Side side) {
    return all[number_of(all, name)].scales->heads(layer, side)[1];
  };
  const auto own = [&](int64_t layer, Side side) { return expected.head->heads(layer, side)[1]; };
  const std::string even = "scales of K and V swapped in the even layers";
  EXPECT_EQ(scale(even, 2, Side::kK), own(2, Side::kV));
  EXPECT_EQ(scale(even, 3, Side::kK), own(3, Side::kK));
  EXPECT_EQ(scale("scales exchanged with the neighbouring layer's", 2, Side::kV), own(3, Side::kV));
  EXPECT_EQ(scale("scales of the two halves of the layers exchanged", 1, Side::kK),
            own(4, Side::kK));
  EXPECT_EQ(scale("scales missing (1.0) in the second half of the layers", 3, Side::kK), 1);
  EXPECT_EQ(scale("scales one layer late", 0, Side::kK), own(0, Side::kK));
  EXPECT_EQ(scale("reciprocal scales", 5, Side::kV), 1 / own(5, Side::kV));
}

// ---- emulation ----

TEST(StoredValuesTest, EveryBf16BecomesTheNearestE5m2) {
  for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTruncate}) {
    for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
      uint16_t half = static_cast<uint16_t>(bits);
      round_to(StoredValues::kE5m2, {&half, 1}, rounding);
      const double x = std::bit_cast<float>(bits << 16);
      const double stored = std::bit_cast<float>(uint32_t{half} << 16);
      // Two mantissa bits, and steps of 2^-16 below 2^-14 (OCP OFP8 1.0).
      const double step = std::exp2(std::max(std::floor(std::log2(x)), -14.0) - 2);
      if (x > 57344) {
        ASSERT_EQ(stored, 57344) << x;
      } else if (rounding == Rounding::kTruncate) {
        ASSERT_TRUE(stored <= x && x - stored < (x == 0 ? 1 : step)) << x << " " << stored;
      } else {
        ASSERT_LE(std::abs(stored - x), x == 0 ? 0 : step / 2) << x;
      }
    }
  }
}

TEST(StoredValuesTest, OnlySixteenBitPagesHoldThem) {
  Engine engine(tiny());
  EXPECT_THROW(
      engine.add_arm(ArmSpec::parse("fp8_scale1"), std::nullopt, 64, 0, StoredValues::kE5m2),
      ValueError);
}

TEST(FingerprintPieces, ArePrefixedAndBounded) {
  std::vector<int32_t> text(300);
  std::iota(text.begin(), text.end(), 10);
  const std::vector<int32_t> prefix = {1};
  text.insert(text.begin(), 1);
  const std::vector<std::vector<int32_t>> texts = {text, {5, 6, 7}};
  const auto pieces = fingerprint_pieces(texts, prefix, 129, 220);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].size(), 129u);
  EXPECT_EQ(pieces[0][1], 10);
  EXPECT_EQ(pieces[1][0], 1);
  EXPECT_EQ(pieces[1][1], 138);
  EXPECT_EQ(pieces[1].size(), 93u);
}

// ---- evidence ----

/// What every hypothesis gives for one text of the built-in model, with the engine's usual plan and
/// with another order of additions, as another implementation would have it.
struct Emulated {
  std::vector<Hypothesis> hypotheses = fingerprint_hypotheses(some_scales());
  std::vector<std::vector<double>> own, others;
  Emulated() {
    const auto piece = pieces_of_own_text(113, 112).front();
    own = emulate(tiny(), piece, hypotheses, all_of(hypotheses), BatchPlan{});
    others = emulate(tiny(), piece, hypotheses, all_of(hypotheses), BatchPlan{64, 512, 64});
  }
  static const Emulated& once() {
    static const Emulated all;
    return all;
  }
  /// Served is hypothesis `h`, computed the other way, with as much noise as `noise` times its
  /// own errors; 0 is the control.
  FingerprintPiece planted(size_t h, double noise, uint64_t seed) const {
    FingerprintPiece out;
    out.control = others[0];
    out.candidate = others[h];
    out.own_control = own[0];
    out.own_by_index.assign(own.begin() + 1, own.end());
    double squares = 0;
    for (size_t t = 0; t < others[0].size(); ++t) {
      squares += std::pow(others[h][t] - others[0][t], 2);
    }
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(
        0, noise * std::sqrt(squares / static_cast<double>(others[0].size())));
    if (noise > 0) {
      for (double& x : out.candidate) x += normal(random);
    }
    return out;
  }
};

TEST(FingerprintEvidenceTest, NamesEveryPlantedHypothesis) {
  const Emulated& all = Emulated::once();
  int wrong = 0, named = 0;
  for (size_t h = 1; h < all.others.size(); ++h) {
    FingerprintEvidence evidence(all.hypotheses.size());
    evidence.add(all.planted(h, 0.3, h));
    const Fingerprint found = evidence.judge(true);
    if (found.end != End::kNamed) continue;
    ++named;
    wrong += found.rows.front().hypothesis != h - 1;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(named, static_cast<int>(all.hypotheses.size() * 7 / 10));
}

TEST(FingerprintEvidenceTest, NothingQuantizedIsSaidSo) {
  const Emulated& all = Emulated::once();
  FingerprintEvidence evidence(all.hypotheses.size());
  FingerprintPiece piece = all.planted(0, 0, 1);
  evidence.add(piece);
  EXPECT_EQ(evidence.judge(false).end, End::kNotQuantized);
  // A server whose batches move its logprobs: no more than the control's own do.
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0, 0.01);
  std::vector<double> again = piece.control;
  for (double& x : piece.candidate) x += normal(random);
  for (double& x : again) x += normal(random);
  FingerprintEvidence noisy(all.hypotheses.size());
  noisy.add(piece);
  noisy.add_repeat(piece.control, again);
  EXPECT_EQ(noisy.judge(false).end, End::kUndecided);
  EXPECT_EQ(noisy.judge(true).end, End::kNotQuantized);
}

TEST(FingerprintEvidenceTest, WhatIsNoneOfTheseIsNotNamed) {
  const Emulated& all = Emulated::once();
  int named = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FingerprintPiece piece = all.planted(0, 0, seed);
    std::mt19937_64 random(seed);
    std::student_t_distribution<double> tails(3);
    for (double& x : piece.candidate) x += 0.05 * tails(random);
    FingerprintEvidence evidence(all.hypotheses.size());
    evidence.add(piece);
    named += evidence.judge(true).end == End::kNamed;
  }
  EXPECT_EQ(named, 0);
}

TEST(FingerprintEvidenceTest, AServerBrokenInItsOwnWayIsNotNamed) {
  const Emulated& all = Emulated::once();
  FingerprintPiece piece = all.planted(0, 0, 1);
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(-14, 1);
  for (double& x : piece.candidate) x = normal(random);  // whatever the token
  FingerprintEvidence evidence(all.hypotheses.size());
  evidence.add(piece);
  EXPECT_EQ(evidence.judge(true).end, End::kNoneOfThese);
}

TEST(FingerprintEvidenceTest, HopelessHypothesesAreGivenUpAndStayInTheList) {
  const Emulated& all = Emulated::once();
  const size_t planted = number_of(all.hypotheses, "one scale per head, truncated");
  FingerprintEvidence evidence(all.hypotheses.size());
  FingerprintPiece piece = all.planted(planted + 1, 0.1, 9);
  evidence.add(piece);
  evidence.drop_hopeless(evidence.judge(false));
  EXPECT_LT(evidence.live().size(), all.hypotheses.size() / 2);
  EXPECT_GE(evidence.live().size(), 7u);
  EXPECT_TRUE(std::ranges::binary_search(evidence.live(), planted));
  EXPECT_THROW(evidence.add(piece), ValueError);  // has what is not asked for any more
}

TEST(FingerprintEvidenceTest, ImpossibleTokensAreLeftOutAndCounted) {
  const Emulated& all = Emulated::once();
  FingerprintPiece piece = all.planted(1, 0.1, 2);
  piece.candidate[3] = -std::numeric_limits<double>::infinity();
  piece.control[5] = std::numeric_limits<double>::quiet_NaN();
  FingerprintEvidence evidence(all.hypotheses.size());
  evidence.add(piece);
  const Fingerprint found = evidence.judge(true);
  EXPECT_EQ(found.impossible, 2);
  EXPECT_EQ(found.tokens, std::ssize(piece.control) - 2);
  EXPECT_EQ(found.rows.front().hypothesis, 0u);
  piece.candidate.pop_back();
  EXPECT_THROW(evidence.add(piece), ValueError);
}

// ---- what a real engine served ----

/// vLLM 0.32 on a CPU with SmolLM2-135M, two texts of 128 tokens, beside what each hypothesis gives
/// on kvscale's own engine; `candidate` is how the engine was told to store its cache.
std::string recorded_verdict(const testing::Json& recorded, const std::string& candidate) {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : recorded["texts"][0]["own_differences"].items()) {
    names.push_back(name);
  }
  FingerprintEvidence evidence(names.size());
  Fingerprint found;
  for (const auto& text : recorded["texts"]) {
    FingerprintPiece piece;
    piece.control = text["control"].get<std::vector<double>>();
    piece.candidate = text["candidates"][candidate].get<std::vector<double>>();
    piece.own_control = text["own_control"].get<std::vector<double>>();
    for (const size_t h : evidence.live()) {
      auto& one = piece.own_by_index.emplace_back(
          text["own_differences"][names[h]].get<std::vector<double>>());
      for (size_t t = 0; t < one.size(); ++t) one[t] += piece.own_control[t];
    }
    evidence.add(piece);
    found = evidence.judge(&text == &recorded["texts"].back());
    if (found.end == End::kNamed) return names[found.rows.front().hypothesis];
    if (found.end == End::kNotQuantized) return "not quantized";
    evidence.drop_hopeless(found);
  }
  return found.end == End::kNoneOfThese ? "none of these" : "undecided";
}

TEST(RecordedFingerprint, NamesWhatARealEngineDoes) {
  std::ifstream file(std::string(KV_SOURCE_DIR) + "/tests/golden/study/smollm2_fingerprint.json");
  const testing::Json recorded = testing::Json::parse(file);
  const std::map<std::string, std::string> expected = {
      {"auto", "not quantized"},
      {"fp8", "scale 1.0, truncated"},
      {"per tensor", "one scale per tensor, the largest of its heads', truncated"},
      {"per head", "one scale per tensor, the largest of its heads', truncated"},
      {"fp8_e5m2", "E5M2 with scale 1.0, truncated"},
      {"swapped", "scales of K and V swapped in the even layers, truncated"},
      {"fp8_per_token_head", "none of these"}};
  for (const auto& [candidate, name] : expected) {
    EXPECT_EQ(recorded_verdict(recorded, candidate), name) << candidate;
  }
}

// ---- servers ----

TEST(ServedFingerprint, NamesWhatAServerStores) {
  const std::vector<Hypothesis> all = fingerprint_hypotheses(some_scales());
  const std::vector<Hypothesis> few = {
      all[number_of(all, "scale 1.0")],
      all[number_of(all, "scale 1.0, truncated")],
      all[number_of(all, "one scale per tensor, the largest of its heads', truncated")],
      all[number_of(all, "one scale per head, truncated")],
      all[number_of(all, "E5M2 with scale 1.0, truncated")],
      all[number_of(all, "scales of K and V swapped in the even layers, truncated")]};
  const auto pieces = pieces_of_own_text(65, 192);
  ModelServer control(tiny(), ArmSpec{});
  NoProgress silent;
  const auto taken_of = [&](const std::string& url) {
    CompletionClient left(testing::quick(control.url()), Dialect::kVllm),
        right(testing::quick(url), Dialect::kVllm);
    return take_fingerprint(left, right, tiny(), pieces, few, {}, silent);
  };
  for (size_t h = 2; h < few.size(); ++h) {
    ModelServer candidate(tiny(), few[h].arm, few[h].scales, few[h].values);
    const Fingerprint found = taken_of(candidate.url());
    EXPECT_EQ(found.end, End::kNamed) << few[h].name;
    EXPECT_EQ(few[found.rows.front().hypothesis].name, few[h].name);
    EXPECT_EQ(found.tokens, 128);  // two of the three texts were enough
  }
  EXPECT_EQ(taken_of(control.url()).end, End::kNotQuantized);
}

}  // namespace
}  // namespace kv::fingerprint_test
