#include "evaluate/range_health.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/simd.h"

namespace kv {
namespace {

using Json = nlohmann::json;

/// One layer's attention of one sequence, and the output projection as a plain matrix.
struct Block {
  int64_t tokens = 0, q_heads = 0, kv_heads = 0, head_dim = 0, hidden = 0;
  float softmax_scale = 1;
  std::vector<uint16_t> q = {}, k = {}, v = {};
  std::vector<float> residual = {}, projection = {};  // projection [q_heads * head_dim, hidden]

  AttentionTap tap(int64_t first, int64_t count) const {
    AttentionTap out;
    out.first_position = first;
    out.num_tokens = count;
    out.num_q_heads = q_heads;
    out.num_kv_heads = kv_heads;
    out.head_dim = head_dim;
    out.hidden_size = hidden;
    out.softmax_scale = softmax_scale;
    out.q = q.data() + first * q_heads * head_dim;
    out.k = k.data() + first * kv_heads * head_dim;
    out.v = v.data() + first * kv_heads * head_dim;
    out.residual = residual.data() + first * hidden;
    out.project = [this](const float* in, int64_t rows, float* result) {
      const int64_t width = q_heads * head_dim;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < hidden; ++c) {
          double sum = 0;
          for (int64_t i = 0; i < width; ++i) sum += in[r * width + i] * projection[i * hidden + c];
          result[r * hidden + c] = static_cast<float>(sum);
        }
      }
    };
    return out;
  }

  void feed(RangeMeter& meter, int64_t chunk, int64_t sequence = 0, int64_t layer = 0) const {
    for (int64_t first = 0; first < tokens; first += chunk) {
      AttentionTap part = tap(first, std::min(chunk, tokens - first));
      part.sequence = sequence;
      part.layer = layer;
      meter.on_attention(part);
    }
    meter.end_sequence(sequence);
  }
};

const std::filesystem::path kGolden =
    std::filesystem::path(KV_SOURCE_DIR) / "tests/golden/evaluate";

const Json& expected() {
  static const Json json = Json::parse(std::ifstream(kGolden / "range_expected.json"));
  return json;
}

Block golden_block() {
  const Json& json = expected();
  Block out;
  out.tokens = json["tokens"], out.q_heads = json["q_heads"], out.kv_heads = json["kv_heads"];
  out.head_dim = json["head_dim"], out.hidden = json["hidden"];
  out.softmax_scale = json["softmax_scale"].get<float>();
  out.q.resize(out.tokens * out.q_heads * out.head_dim);
  out.k.resize(out.tokens * out.kv_heads * out.head_dim);
  out.v.resize(out.k.size());
  out.residual.resize(out.tokens * out.hidden);
  out.projection.resize(out.q_heads * out.head_dim * out.hidden);
  std::ifstream file(kGolden / "range_input.bin", std::ios::binary);
  const auto read = [&](auto& values) {
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(values[0])));
  };
  read(out.q), read(out.k), read(out.v), read(out.residual), read(out.projection);
  EXPECT_TRUE(file.good() && file.peek() == EOF);
  return out;
}

RangeLayout layout(const std::string& name, Format format, const std::vector<float>& k_scales,
                   const std::vector<float>& v_scales) {
  ScaleTable table(1, static_cast<int64_t>(k_scales.size()), "test");
  for (size_t head = 0; head < k_scales.size(); ++head) {
    table.set(0, Side::kK, static_cast<int64_t>(head), k_scales[head]);
    table.set(0, Side::kV, static_cast<int64_t>(head), v_scales[head]);
  }
  return {name, format, table};
}

RangeLayout inline_layout() { return {"fp8_token_head", Format::kE4m3PerTokenHead, {}}; }

std::vector<RangeLayout> golden_layouts() {
  std::vector<RangeLayout> out;
  for (const char* name : {"fp8_scale1", "fp8_tensor", "fp8_head"}) {
    const Json& scales = expected()["scales"][name];
    out.push_back(layout(name, Format::kE4m3PerHead, scales["k"].get<std::vector<float>>(),
                         scales["v"].get<std::vector<float>>()));
  }
  out.push_back(inline_layout());
  return out;
}

RangeOptions golden_options(Rounding rounding = Rounding::kNearestEven) {
  return {expected()["first_query"], expected()["stride"], rounding};
}

void expect_record(const Json& wanted, const RangeRecord& record) {
  SCOPED_TRACE(record.record_id);
  // Scores reach 1e3 here and are F32: 1e3 * 2^-24 * sqrt(head_dim) is 3e-4 nats of 1.
  const double tolerance = 1e-3;
  EXPECT_NEAR(record.block_damage, wanted["block_damage"], tolerance * record.block_damage);
  if (record.side == "kv") return;
  const auto close = [&](double found, double value, double relative) {
    EXPECT_NEAR(found, value, relative * std::abs(value));
  };
  close(record.noise_mean, wanted["noise_mean"], tolerance);
  close(record.noise_worst, wanted["noise_worst"], tolerance);
  ASSERT_EQ(record.noise_heads.size(), wanted["noise_heads"].size());
  for (size_t h = 0; h < record.noise_heads.size(); ++h) {
    close(record.noise_heads[h], wanted["noise_heads"][h], tolerance);
  }
  // Errors are differences of F32 numbers, exact or nearly so.
  EXPECT_NEAR(record.sqnr_db, wanted["sqnr_db"], 1e-5);
  EXPECT_NEAR(record.centred_sqnr_db, wanted["centred_sqnr_db"], 1e-5);
  EXPECT_DOUBLE_EQ(record.clip_frac, wanted["clip_frac"]);
  EXPECT_DOUBLE_EQ(record.zero_frac, wanted["zero_frac"]);
  EXPECT_EQ(record.amax, wanted["amax"].get<double>());
  ASSERT_EQ(record.amax_heads.size(), wanted["amax_heads"].size());
  for (size_t h = 0; h < record.amax_heads.size(); ++h) {
    EXPECT_EQ(record.amax_heads[h], wanted["amax_heads"][h].get<double>());
    EXPECT_NEAR(record.sqnr_db_heads.at(h), wanted["sqnr_db_heads"][h], 1e-5);
    EXPECT_DOUBLE_EQ(record.clip_frac_heads.at(h), wanted["clip_frac_heads"][h]);
  }
}

TEST(RangeMeter, AgreesWithNumpyUnderEveryLayoutAndRounding) {
  const Block block = golden_block();
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    force_simd_target(target);
    for (const char* rounding : {"nearest", "truncate"}) {
      const bool is_nearest = std::string(rounding) == "nearest";
      RangeMeter meter(golden_layouts(),
                       golden_options(is_nearest ? Rounding::kNearestEven : Rounding::kTruncate));
      block.feed(meter, block.tokens);
      const auto records = meter.finish();
      ASSERT_EQ(records.size(), 12u);
      for (const RangeRecord& record : records) {
        SCOPED_TRACE(rounding);
        EXPECT_EQ(record.tokens, block.tokens);
        EXPECT_EQ(record.queries, 15);
        EXPECT_EQ(record.record_id, "range/0/" + record.side + "/" + record.layout);
        expect_record(expected()[rounding][record.layout][record.side], record);
      }
    }
  }
  force_simd_target("");
}

/// All numbers of all records, for comparison bit by bit.
std::vector<double> numbers(const std::vector<RangeRecord>& records) {
  std::vector<double> out;
  for (const RangeRecord& r : records) {
    out.insert(out.end(), {r.noise_mean, r.noise_worst, r.block_damage, r.sqnr_db,
                           r.centred_sqnr_db, r.clip_frac, r.zero_frac, r.amax,
                           static_cast<double>(r.tokens), static_cast<double>(r.queries)});
    out.insert(out.end(), r.noise_heads.begin(), r.noise_heads.end());
    out.insert(out.end(), r.sqnr_db_heads.begin(), r.sqnr_db_heads.end());
  }
  return out;
}

TEST(RangeMeter, ChunksDoNotChangeABit) {
  const Block block = golden_block();
  std::vector<std::vector<double>> results;
  for (const int64_t chunk : {int64_t{150}, int64_t{1}, int64_t{7}, int64_t{64}}) {
    RangeMeter meter(golden_layouts(), golden_options());
    block.feed(meter, chunk);
    results.push_back(numbers(meter.finish()));
    EXPECT_EQ(results.back(), results.front()) << "chunks of " << chunk;
  }
}

TEST(RangeMeter, SequencesInOneBatchAreKeptApart) {
  const Block block = golden_block();
  RangeMeter together(golden_layouts(), golden_options()),
      apart = RangeMeter(golden_layouts(), golden_options());
  for (int64_t first = 0; first < block.tokens; first += 50) {
    for (const int64_t sequence : {3, 8}) {
      AttentionTap tap = block.tap(first, 50);
      tap.sequence = sequence;
      together.on_attention(tap);
    }
  }
  block.feed(apart, 50, 3);
  block.feed(apart, 50, 3);  // its number may be used again
  const auto found = together.finish(), wanted = apart.finish();
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, 2 * block.tokens);
    EXPECT_EQ(found[i].queries, 30);
    EXPECT_NEAR(found[i].noise_mean, wanted[i].noise_mean, 1e-12);
    EXPECT_NEAR(found[i].block_damage, wanted[i].block_damage, 1e-12);
  }
}

TEST(RangeMeter, LayersAreKeptApart) {
  Block block = golden_block();
  std::vector<RangeLayout> layouts = {
      {"fp8_scale1", Format::kE4m3PerTensor, ScaleTable(3, 2, "one")}};
  RangeMeter meter(layouts, golden_options());
  block.feed(meter, 150, 0, 2);
  for (uint16_t& x : block.k) x = 0;
  block.feed(meter, 150, 0, 1);
  const auto records = meter.finish();
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records[0].record_id, "range/1/k/fp8_scale1");
  EXPECT_EQ(records[0].noise_mean, 0);
  EXPECT_EQ(records[0].amax, 0);
  EXPECT_EQ(records[3].record_id, "range/2/k/fp8_scale1");
  expect_record(expected()["nearest"]["fp8_scale1"]["k"], records[3]);
}

/// Score noise of query head `head` at scale 1 by its definition, in double.
double score_noise(const Block& block, int64_t head, int64_t window, double cap,
                   const RangeOptions& options) {
  const int64_t kv_head = head * block.kv_heads / block.q_heads, dim = block.head_dim;
  const auto capped = [&](double x) { return cap > 0 ? cap * std::tanh(x / cap) : x; };
  double sum = 0, queries = 0;
  for (int64_t t = options.first_query; t < block.tokens; t += options.stride, ++queries) {
    double total = 0, mean = 0, square = 0;
    for (int64_t s = window > 0 ? std::max<int64_t>(0, t - window + 1) : 0; s <= t; ++s) {
      double score = 0, stored = 0;
      for (int64_t d = 0; d < dim; ++d) {
        const double q = bf16::decode(block.q[(t * block.q_heads + head) * dim + d]);
        const float k = bf16::decode(block.k[(s * block.kv_heads + kv_head) * dim + d]);
        score += q * k * block.softmax_scale;
        stored += q * e4m3::decode(e4m3::encode(k)) * block.softmax_scale;
      }
      const double e = capped(stored) - capped(score), p = std::exp(capped(score) - cap);
      total += p, mean += p * e, square += p * e * e;
    }
    sum += square / total - mean * mean / (total * total);
  }
  return std::sqrt(sum / queries);
}

TEST(RangeMeter, WindowsAndSoftCapsAreThoseOfTheLayer) {
  Block block = golden_block();
  block.softmax_scale *= 0.01f;  // scores of some nats, which the cap bends but does not flatten
  for (const auto& [window, cap] : {std::pair{0, 0.0f}, {20, 0.0f}, {0, 4.0f}, {33, 4.0f}}) {
    const std::vector<float> ones(static_cast<size_t>(block.kv_heads), 1.0f);
    RangeMeter meter({layout("fp8_scale1", Format::kE4m3PerTensor, ones, ones)}, golden_options());
    AttentionTap tap = block.tap(0, block.tokens);
    tap.window = window;
    tap.soft_cap = cap;
    meter.on_attention(tap);
    const RangeRecord keys = meter.finish().front();
    ASSERT_EQ(keys.side, "k");
    for (int64_t head = 0; head < block.q_heads; ++head) {
      const double wanted = score_noise(block, head, window, cap, golden_options());
      EXPECT_GT(wanted, 0);
      EXPECT_NEAR(keys.noise_heads[static_cast<size_t>(head)], wanted, 2e-3 * wanted)
          << "window " << window << " cap " << cap << " head " << head;
    }
  }
}

// Case 125: a first token whose key is 50 times as long as the others', and its value a hundredth.
TEST(RangeMeter, Case125TheFirstTokenIsShownApart) {
  Block block = golden_block();
  block.softmax_scale *= 0.001f;  // so that it does not get all of the attention
  const int64_t width = block.kv_heads * block.head_dim, dim = block.head_dim;
  for (int64_t c = 0; c < width; ++c) {
    block.k[c] = bf16::encode(50 * bf16::decode(block.k[c]));
    block.v[c] = bf16::encode(bf16::decode(block.v[c]) / 100);
  }
  const std::vector<float> ones(static_cast<size_t>(block.kv_heads), 1.0f);
  const RangeOptions options = golden_options();
  RangeMeter meter({layout("fp8_scale1", Format::kE4m3PerTensor, ones, ones)}, options);
  meter.on_attention(block.tap(0, block.tokens));
  const std::vector<FirstTokenRecord> found = meter.first_tokens();
  ASSERT_EQ(found.size(), 2u);
  double attention = 0, noise = 0, queries = 0;
  for (int64_t head = 0; head < block.q_heads; ++head) {
    const int64_t kv_head = head * block.kv_heads / block.q_heads;
    for (int64_t t = options.first_query; t < block.tokens; t += options.stride, ++queries) {
      double total = 0, first = 0, error = 0;
      for (int64_t s = 0; s <= t; ++s) {
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) {
          const double q = bf16::decode(block.q[(t * block.q_heads + head) * dim + d]);
          const float k = bf16::decode(block.k[(s * block.kv_heads + kv_head) * dim + d]);
          score += q * k * block.softmax_scale;
          if (s == 0) error += q * (e4m3::decode(e4m3::encode(k)) - k) * block.softmax_scale;
        }
        total += std::exp(score);
        if (s == 0) first = std::exp(score);
      }
      attention += first / total;
      noise += first / total * (1 - first / total) * error * error;
    }
  }
  const FirstTokenRecord& k = found[0];
  EXPECT_EQ(k.record_id, "first/0/k/fp8_scale1");
  EXPECT_NEAR(k.attention, attention / queries, 1e-5);
  EXPECT_NEAR(k.noise, std::sqrt(noise / queries), 2e-3 * k.noise);
  EXPECT_GT(k.noise, 0);
  EXPECT_GT(k.noise_share, 0.5) << "one key of many";
  EXPECT_LE(k.noise_share, 1.2) << "its error may offset others', not by much";
  EXPECT_GT(k.norm_ratio, 20);
  const FirstTokenRecord& v = found[1];
  EXPECT_LT(v.norm_ratio, 0.05);
  EXPECT_GT(v.sqnr_db, 20) << "a value this small is still above the subnormal codes";
  EXPECT_EQ(v.attention, k.attention);
  EXPECT_EQ(v.sequences, 1);
}

TEST(RangeMeter, ShortSequencesHaveValuesButNoQueries) {
  const Block block = golden_block();
  RangeMeter meter(golden_layouts(), {200, 1, Rounding::kNearestEven});
  block.feed(meter, 64);
  for (const RangeRecord& record : meter.finish()) {
    EXPECT_EQ(record.queries, 0);
    EXPECT_EQ(record.noise_mean, 0);
    EXPECT_EQ(record.block_damage, 0);
    if (record.side != "kv") {
      EXPECT_NEAR(record.sqnr_db, expected()["nearest"][record.layout][record.side]["sqnr_db"],
                  1e-5);
    }
  }
}

TEST(RangeMeter, DeadHeadsLoseNothing) {
  Block block = golden_block();
  for (uint16_t& x : block.k) x = 0;
  for (uint16_t& x : block.v) x = 0;
  RangeMeter meter(golden_layouts(), golden_options());
  block.feed(meter, 150);
  for (const RangeRecord& record : meter.finish()) {
    EXPECT_EQ(record.noise_mean, 0) << record.record_id;
    EXPECT_EQ(record.block_damage, 0) << record.record_id;
    EXPECT_EQ(record.zero_frac, 0) << record.record_id;
  }
}

// ---- Published numbers of planted ranges -----------------------------------------------------

struct Normal {
  std::mt19937_64 random;
  std::normal_distribution<float> normal{0, 1};
  explicit Normal(uint64_t seed) : random(seed) {}
  uint16_t operator()(float scale, float offset = 0) {
    return bf16::encode(normal(random) * scale + offset);
  }
};

// SQNR of normally distributed values at scale 1 by their sigma, in dB ("E4M3 conversion and
// SQNR").
TEST(RangeMeter, SqnrOfNormalValuesIsThePublishedOne) {
  const std::vector<std::pair<double, double>> published = {
      {-9, 10.79}, {-8, 16.81},  {-7, 22.83}, {-6, 28.30},  {-5, 30.91}, {-4, 31.44}, {-2, 31.52},
      {6, 31.52},  {6.5, 31.55}, {7, 31.21},  {7.5, 24.90}, {8, 16.21},  {9, 7.04}};
  for (const auto& [exponent, sqnr] : published) {
    Block block{.tokens = 4000, .q_heads = 1, .kv_heads = 1, .head_dim = 64, .hidden = 1};
    Normal normal(17);
    block.k.resize(4000 * 64);
    for (uint16_t& x : block.k) x = normal(static_cast<float>(std::exp2(exponent)));
    block.v = block.q = block.k;
    RangeMeter meter({layout("fp8_scale1", Format::kE4m3PerTensor, {1}, {1})},
                     {5000, 1, Rounding::kNearestEven});
    block.feed(meter, 4000);
    // 256,000 values: the standard error of an SQNR is about 0.01 dB, ten times that where a
    // hundred clipped values carry the error; values come rounded to BF16, which makes some ties.
    const double tolerance = exponent < 7 ? 0.06 : 0.25;
    EXPECT_NEAR(meter.finish()[0].sqnr_db, sqnr, tolerance) << "sigma 2^" << exponent;
    if (exponent == 7.5) {
      EXPECT_NEAR(meter.finish()[0].clip_frac, 0.0133, 0.0005);
    }
  }
}

/// The last head of one layer, 256 queries over 2,048 keys: the RMSE of its output relative to the
/// output's standard deviation.
struct Planted {
  Block block{.tokens = 2048,
              .q_heads = 1,
              .kv_heads = 1,
              .head_dim = 64,
              .hidden = 64,
              .softmax_scale = 0.125f};

  explicit Planted(float key_scale, float offset, int64_t heads = 1) {
    block.q_heads = block.kv_heads = heads;
    Normal normal(31);
    const size_t n = static_cast<size_t>(2048 * heads * 64);
    std::vector<float> offsets(64);
    for (float& x : offsets) x = normal.normal(normal.random) * offset;
    for (size_t i = 0; i < n; ++i) {
      block.k.push_back(normal(key_scale, offsets[i % 64]));
      block.v.push_back(normal(1));
      block.q.push_back(normal(1.5f / key_scale));
    }
    // Beside this residual the output vanishes, so block damage is the RMSE times sqrt(64) / |r|.
    block.residual.assign(2048 * 64, kResidual);
    block.projection.assign(static_cast<size_t>(heads * 64 * 64), 0.0f);
    for (int64_t c = 0; c < 64; ++c) block.projection[((heads - 1) * 64 + c) * 64 + c] = 1;
  }

  static constexpr float kResidual = 1e4f;

  /// Root mean square of the last head's output, in double.
  double output_rms() const {
    const int64_t heads = block.kv_heads, head = heads - 1;
    const auto at = [&](const std::vector<uint16_t>& x, int64_t t, int64_t c) {
      return static_cast<double>(bf16::decode(x[(t * heads + head) * 64 + c]));
    };
    double squares = 0;
    for (int64_t t = 2048 - 256; t < 2048; ++t) {
      std::vector<double> out(64);
      double sum = 0;
      for (int64_t key = 0; key <= t; ++key) {
        double score = 0;
        for (int64_t c = 0; c < 64; ++c) score += at(block.q, t, c) * at(block.k, key, c);
        const double weight = std::exp(score * 0.125);
        sum += weight;
        for (int64_t c = 0; c < 64; ++c) out[c] += weight * at(block.v, key, c);
      }
      for (const double x : out) squares += x * x / (sum * sum);
    }
    return std::sqrt(squares / (256 * 64));
  }

  /// The error by layout, K alone rounded.
  std::map<std::string, double> damage(float tensor_scale, float head_scale) const {
    const auto heads = static_cast<size_t>(block.kv_heads);
    const std::vector<float> ones(heads, 1.0f), shared(heads, tensor_scale), own(heads, head_scale);
    RangeMeter meter({layout("scale1", Format::kE4m3PerTensor, ones, ones),
                      layout("tensor", Format::kE4m3PerTensor, shared, ones),
                      layout("head", Format::kE4m3PerHead, own, ones), inline_layout()},
                     {2048 - 256, 1, Rounding::kNearestEven});
    block.feed(meter, 2048);
    std::map<std::string, double> out;
    const double rms = output_rms();
    for (const RangeRecord& record : meter.finish()) {
      if (record.side == "k") out[record.layout] = record.block_damage * kResidual / rms;
    }
    return out;
  }
};

// The table "planted ranges, one head, K storage only"; its tolerance is 20 %.
TEST(RangeMeter, PlantedRangesDamageAsPublished) {
  const float amax = 4.5f;  // of 131,072 normal values
  const auto close = [](double found, double published) {
    EXPECT_NEAR(found, published, 0.2 * published);
  };
  const auto none = Planted(1, 0).damage(amax / 448, amax / 448);
  close(none.at("scale1"), 0.045);
  close(none.at("tensor"), 0.047);
  close(none.at("fp8_token_head"), 0.042);
  const auto large = Planted(256, 0).damage(256 * amax / 448, 256 * amax / 448);
  close(large.at("scale1"), 0.34);
  close(large.at("tensor"), 0.047);
  const auto offset = Planted(1, 8).damage(20 / 448.0f, 20 / 448.0f);
  close(offset.at("scale1"), 0.30);
  close(offset.at("tensor"), 0.30);
  close(offset.at("fp8_token_head"), 0.30);
  // Head B 2^-16 of head A, whose amax sets the shared scale.
  const float small = 0x1p-6f;
  const auto starved = Planted(small, 0).damage(1024 * amax / 448, small * amax / 448);
  close(starved.at("scale1"), 0.060);
  close(starved.at("tensor"), 0.62);
  close(starved.at("head"), 0.047);
}

// ---- What the norm that follows sees -----------------------------------------------------------

TEST(RangeMeter, DamageIsWeighedByTheNormThatFollows) {
  const Block block = golden_block();
  const auto measured = [&](const std::vector<float>& weights) {
    RangeMeter meter(golden_layouts(), golden_options());
    AttentionTap tap = block.tap(0, block.tokens);
    if (!weights.empty()) tap.next_norm = weights.data();
    meter.on_attention(tap);
    return meter.finish();
  };
  const std::vector<RangeRecord> without = measured({});
  // A norm that weighs all channels alike changes nothing; one that reads the first channel alone
  // sees the damage there, as a projection onto that channel would have it.
  const std::vector<RangeRecord> alike =
      measured(std::vector<float>(static_cast<size_t>(block.hidden), 3.0f));
  std::vector<float> first(static_cast<size_t>(block.hidden));
  first[0] = 1;
  const std::vector<RangeRecord> one = measured(first);
  Block narrow = block;
  narrow.hidden = 1;
  narrow.residual.clear();
  narrow.projection.clear();
  for (size_t i = 0; i < block.residual.size(); i += static_cast<size_t>(block.hidden)) {
    narrow.residual.push_back(block.residual[i]);
  }
  for (size_t i = 0; i < block.projection.size(); i += static_cast<size_t>(block.hidden)) {
    narrow.projection.push_back(block.projection[i]);
  }
  RangeMeter meter(golden_layouts(), golden_options());
  narrow.feed(meter, block.tokens);
  const std::vector<RangeRecord> expected_one = meter.finish();
  for (size_t i = 0; i < without.size(); ++i) {
    EXPECT_DOUBLE_EQ(without[i].normed_damage, without[i].block_damage);
    // Squares times 9, then their ratio: a few roundings of double.
    EXPECT_NEAR(alike[i].normed_damage, without[i].block_damage, 1e-12);
    EXPECT_NEAR(one[i].normed_damage, expected_one[i].block_damage,
                1e-9 * expected_one[i].block_damage);
  }
}

// ---- Refusals ----------------------------------------------------------------------------------

TEST(RangeMeter, ImpossibleOptionsAreRefused) {
  EXPECT_THROW(RangeMeter({}, {}), ValueError);
  EXPECT_THROW(RangeMeter({{"bf16", Format::kBf16, {}}}, {}), ValueError);
  EXPECT_THROW(RangeMeter({inline_layout(), inline_layout()}, {}), ValueError);
  EXPECT_THROW(RangeMeter({inline_layout()}, {-1, 16, Rounding::kNearestEven}), ValueError);
  EXPECT_THROW(RangeMeter({inline_layout()}, {64, 0, Rounding::kNearestEven}), ValueError);
}

TEST(RangeMeter, TokensOutOfOrderAreRefused) {
  const Block block = golden_block();
  RangeMeter meter(golden_layouts(), golden_options());
  EXPECT_THROW(meter.on_attention(block.tap(1, 2)), ValueError);
  meter.on_attention(block.tap(0, 2));
  EXPECT_THROW(meter.on_attention(block.tap(0, 2)), ValueError);
  EXPECT_THROW(meter.on_attention(block.tap(3, 2)), ValueError);
  meter.on_attention(block.tap(2, 2));
  meter.end_sequence(0);
  meter.on_attention(block.tap(0, 2));
  EXPECT_EQ(meter.finish()[0].tokens, 6);
}

TEST(RangeMeter, OtherGeometryThanTheScalesIsRefused) {
  const Block block = golden_block();
  RangeMeter wrong_heads({layout("fp8_head", Format::kE4m3PerHead, {1, 1, 1}, {1, 1, 1})}, {});
  EXPECT_THROW(wrong_heads.on_attention(block.tap(0, 2)), ValueError);
  RangeMeter meter(golden_layouts(), golden_options());
  AttentionTap tap = block.tap(0, 2);
  tap.layer = 1;  // the scales have one layer
  EXPECT_THROW(meter.on_attention(tap), ValueError);
  meter.on_attention(block.tap(0, 2));
  tap = block.tap(2, 2);
  tap.num_q_heads = 2;
  EXPECT_THROW(meter.on_attention(tap), ValueError);
  tap.num_q_heads = 3;
  EXPECT_THROW(meter.on_attention(tap), ValueError);
}

/// A latent as K with V inside it, against the same values as K and V apart: all that is measured
/// agrees, and V goes through K's scale.
TEST(RangeLatents, MeasureAsKeysAndValuesApartWould) {
  constexpr int64_t kLatent = 128, kDim = 144, kTokens = 40, kHeads = 2, kHidden = 6;
  Block apart{kTokens, kHeads, 1, kDim, kHidden};
  const auto wave = [](size_t i, double step) {
    return static_cast<float>(std::sin(step * static_cast<double>(i)));
  };
  for (size_t i = 0; i < kTokens * kDim; ++i) {
    const bool is_latent = static_cast<int64_t>(i % kDim) < kLatent;
    apart.k.push_back(bf16::encode(3 * wave(i, 0.7)));
    apart.v.push_back(is_latent ? apart.k.back() : 0);
  }
  for (size_t i = 0; i < kTokens * kHeads * kDim; ++i)
    apart.q.push_back(bf16::encode(wave(i, 1.3)));
  for (size_t i = 0; i < kTokens * kHidden; ++i) apart.residual.push_back(wave(i, 0.3));
  for (size_t i = 0; i < kHeads * kDim * kHidden; ++i) apart.projection.push_back(wave(i, 2.1));
  apart.softmax_scale = 0.1f;
  const auto measured = [&](bool is_latent) {
    // Another scale of V, which latents do not read.
    RangeMeter meter(
        {layout("fp8_tensor", Format::kE4m3PerTensor, {0.01f}, {is_latent ? 9 : 0.01f}),
         {"fp8_ds_mla", Format::kE4m3PerTokenTile, {}, kLatent}},
        {8, 4});
    AttentionTap tap = apart.tap(0, kTokens);
    if (is_latent) {
      tap.latent_values = kLatent;
      tap.v = tap.k;
      tap.project = [&](const float* in, int64_t rows, float* out) {
        std::vector<float> wide(static_cast<size_t>(rows * kHeads * kDim));
        for (int64_t i = 0; i < rows * kHeads; ++i)
          std::copy_n(in + i * kLatent, kLatent, wide.data() + i * kDim);
        apart.tap(0, kTokens).project(wide.data(), rows, out);
      };
    }
    meter.on_attention(tap);
    return meter.finish();
  };
  const std::vector<RangeRecord> latents = measured(true), pairs = measured(false);
  ASSERT_EQ(latents.size(), 6u);
  for (size_t i = 0; i < latents.size(); ++i) {
    SCOPED_TRACE(latents[i].record_id);
    EXPECT_NEAR(latents[i].block_damage, pairs[i].block_damage, 1e-5);
    EXPECT_GT(latents[i].block_damage, 0);
    if (latents[i].side == "kv") continue;
    EXPECT_NEAR(latents[i].noise_mean, pairs[i].noise_mean, 1e-5);
    EXPECT_NEAR(latents[i].sqnr_db, pairs[i].sqnr_db, 1e-6);
    EXPECT_EQ(latents[i].amax, pairs[i].amax);
  }
}

}  // namespace
}  // namespace kv
