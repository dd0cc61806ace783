#include "calibrate/calibration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "calibrate/fingerprint.h"
#include "kvscale/error.h"
#include "numeric/bf16.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

/// Shows `values` as keys and, ten times smaller, as values of one token: [heads][dim].
void show(AmaxObserver& observer, int64_t layer, const std::vector<float>& values, int64_t heads) {
  std::vector<uint16_t> k, v;
  for (const float x : values) {
    k.push_back(bf16::encode(x));
    v.push_back(bf16::encode(x / 8));
  }
  AttentionTap tap;
  tap.layer = layer;
  tap.num_tokens = 1;
  tap.num_kv_heads = heads;
  tap.head_dim = std::ssize(values) / heads;
  tap.k = k.data();
  tap.v = v.data();
  observer.on_attention(tap);
}

Calibration two_layers(const std::string& created = "2026-01-31T12:00:00Z") {
  std::vector<ExampleAmax> examples;
  AmaxObserver observer(2, 2);
  for (int i = 0; i < 2; ++i) {
    show(observer, 0, {1, -56, 3, 4}, 2);
    show(observer, 0, {2, 5, -100, 4}, 2);
    show(observer, 1, {448, 0, 0, 0}, 2);
    examples.push_back(read_example(observer, "a"));
    observer.reset();
  }
  CalibrationSource source;
  source.model_sha256 = "model-hash";
  source.tokenizer_sha256 = "tokenizer-hash";
  source.prompts = "p.jsonl";
  source.prompts_sha256 = "ids-hash";
  source.token_ids = {7, 8, 9, 12};
  source.config_sha256 = "config-hash";
  source.rope = "theta 10000, default";
  source.chat_template_sha256 = "none";
  source.head_dim = 2;
  source.tool_version = "1";
  source.attention = "scalar";
  source.machine = "a machine";
  source.languages = {{"", 1}, {"en", 1}};
  source.task_mix = {{"niah_single", 2}};
  source.seed = 7;
  source.created_utc = created;
  return finish_calibration(2, 2, examples, {}, nullptr, source);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Calibration, ScaleIsAmaxOver448RoundedUpToBf16) {
  const Calibration c = two_layers();
  const ScaleTable heads = c.scales(true), tensor = c.scales(false);
  EXPECT_EQ(c.at(0, Side::kK, 0), 56);
  EXPECT_EQ(heads.heads(0, Side::kK)[0], 0.125f);
  EXPECT_EQ(heads.heads(1, Side::kK)[0], 1.0f);
  const float scale = heads.heads(0, Side::kK)[1];
  EXPECT_GE(scale * 448.0, 100.0);
  EXPECT_LT(scale * 448.0, 100.0 * (1 + 1.0 / 128));
  EXPECT_EQ(bf16::decode(bf16::encode(scale)), scale);
  EXPECT_EQ(tensor.heads(0, Side::kK)[0], scale);
  EXPECT_EQ(heads.heads(0, Side::kV)[0], 0.125f / 8);
}

TEST(Calibration, ADeadHeadGetsScale1AndIsNamed) {
  const Calibration c = two_layers();
  EXPECT_EQ(c.scales(true).heads(1, Side::kK)[1], 1.0f);
  EXPECT_EQ(c.warnings,
            (std::vector<std::string>{"layer 1 side k head 1: amax 0 (dead), scale 1",
                                      "layer 1 side v head 1: amax 0 (dead), scale 1"}));
}

TEST(Calibration, ALayerThatSawNothingOrSawNanIsAnError) {
  AmaxObserver observer(2, 1);
  show(observer, 0, {1, 2}, 1);
  EXPECT_EQ(message_of([&] { read_example(observer, "p7"); }),
            "calibration: example \"p7\": layer 1: 0 values observed");
  show(observer, 1, {1, std::nanf("")}, 1);
  EXPECT_EQ(message_of([&] { read_example(observer, "p7"); }),
            "calibration: example \"p7\": layer 1 side k head 0: 1 values are not finite");
  EXPECT_EQ(message_of([&] { finish_calibration(2, 1, {}, {}, nullptr, {}); }),
            "calibration: expected examples, found none");
}

/// One layer, one head, values of the two sides alike.
Calibration of_amaxes(const std::vector<float>& amaxes) {
  std::vector<ExampleAmax> examples;
  for (const float amax : amaxes) examples.push_back({10, {amax, 1}});
  return finish_calibration(1, 1, examples, {}, nullptr, {});
}

TEST(Convergence, GrowthOverTheSecondHalfIsNamedAboveOnePercent) {
  const Calibration grown = of_amaxes({4, 2, 1, 4.125f});
  EXPECT_EQ(grown.half_amax, (std::vector<float>{4, 1}));
  EXPECT_EQ(grown.warnings,
            std::vector<std::string>{
                "NOT_CONVERGED: from the first 2 examples to all 4 amax grew by more than 1 % in 1 "
                "of 2 layers' sides: layer 0 side k by 3.1 % (4 to 4.125)"});
  EXPECT_TRUE(of_amaxes({4, 2, 1, 4.03125f}).warnings.empty()) << "0.8 %";
  EXPECT_TRUE(of_amaxes({4, 4.125f, 1}).warnings.size() == 1) << "half of 3 is 1";
  EXPECT_EQ(of_amaxes({4}).warnings.at(0).substr(0, 27), "NOT_CONVERGED: one example:");
}

// Half of one example is nothing: the file says so, and not that its amax was 0.
TEST(Convergence, OfOneExampleIsNotKnown) {
  const auto path = std::filesystem::path(testing::TempDir()) / "one_example.json";
  const Calibration one = of_amaxes({4});
  write_calibration(path, one);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_TRUE(nlohmann::json::parse(text.str()).at("convergence").at("amax").is_null());
  EXPECT_EQ(read_calibration(path), one);
  write_calibration(path, of_amaxes({4, 5}));
  EXPECT_EQ(read_calibration(path), of_amaxes({4, 5}));
}

TEST(Convergence, WorstFirstAndNotAllOfMany) {
  std::vector<ExampleAmax> examples(2);
  for (int i = 0; i < 20; ++i) {
    examples[0].amax.push_back(1);
    examples[1].amax.push_back(1 + 0.125f * static_cast<float>(i));
  }
  const Calibration c = finish_calibration(10, 1, examples, {}, nullptr, {});
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_NE(c.warnings[0].find("in 19 of 20 layers' sides: layer 9 side v by 237.5 % (1 to 3.375), "
                               "layer 9 side k by"),
            std::string::npos)
      << c.warnings[0];
  EXPECT_TRUE(c.warnings[0].ends_with("layer 7 side k by 175.0 % (1 to 2.75), ..."))
      << c.warnings[0];
}

TEST(Calibration, SaysWhatLengthsItSaw) {
  std::vector<ExampleAmax> examples;
  for (const int64_t tokens : {1, 16, 17, 256, 257, 300}) examples.push_back({tokens, {1, 1}});
  const CalibrationSource source = finish_calibration(1, 1, examples, {}, nullptr, {}).source;
  EXPECT_EQ(source.length_histogram,
            (std::map<int64_t, int64_t>{{16, 2}, {32, 1}, {256, 1}, {512, 2}}));
  EXPECT_EQ(source.examples, 6);
  EXPECT_EQ(source.tokens, 847);
  EXPECT_EQ(source.max_tokens, 300);
}

class ScaleFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / ("kvscale-scales-" + std::to_string(::getpid()) + ".json");
    write_calibration(path_, two_layers());
    text_ = read_text();
  }
  void TearDown() override { fs::remove(path_); }
  std::string read_text() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void rewrite(const std::string& text) const { std::ofstream(path_) << text; }

  fs::path path_;
  std::string text_;
};

TEST_F(ScaleFile, RoundTrips) { EXPECT_EQ(read_calibration(path_), two_layers()); }

TEST_F(ScaleFile, TheSameCalibrationGivesTheSameBytesWhenever) {
  write_calibration(path_, two_layers());
  EXPECT_EQ(read_text(), text_);
  write_calibration(path_, two_layers("2027-12-01T00:00:00Z"));
  std::istringstream before(text_), after(read_text());
  std::vector<std::string> changed;
  for (std::string a, b; std::getline(before, a) && std::getline(after, b);) {
    if (a != b) changed.push_back(b.substr(0, b.find(':')));
  }
  EXPECT_EQ(changed, (std::vector<std::string>{" \"created_utc\"", " \"self_sha256\""}));
}

TEST_F(ScaleFile, OfAnotherSchemaIsRefusedByItsNumber) {
  std::string older = text_;
  older.replace(older.find("\"schema\": 4"), 11, "\"schema\": 3");
  rewrite(older);
  EXPECT_NE(message_of([&] {
              read_calibration(path_);
            }).find("schema: expected 4, found 3: written by another version of kvscale"),
            std::string::npos);
}

ModelSpec model_of_two_layers() {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.num_layers = spec.num_kv_heads = spec.num_q_heads = 2;
  spec.head_dim = 4;
  spec.vocab_size = 20;
  return spec;
}

// Every field by itself, on the file's side and on the model's.
TEST_F(ScaleFile, AnyFieldOfAnotherModelIsAnErrorThatNamesIt) {
  const ModelSpec model = model_of_two_layers();
  Calibration c = two_layers();
  add_model_fields(model, c.source);
  const CalibrationSource here = c.source;
  EXPECT_TRUE(check_calibration(c, here, model, "s.json").empty());
  const auto refused = [&](const Calibration& other, const ModelSpec& spec) {
    return message_of([&] { check_calibration(other, here, spec, "s.json"); });
  };
  const std::pair<const char*, std::string CalibrationSource::*> texts[] = {
      {"model_sha256", &CalibrationSource::model_sha256},
      {"config_sha256", &CalibrationSource::config_sha256},
      {"tokenizer_sha256", &CalibrationSource::tokenizer_sha256},
      {"chat_template_sha256", &CalibrationSource::chat_template_sha256},
      {"rope", &CalibrationSource::rope}};
  for (const auto& [field, member] : texts) {
    Calibration other = c;
    other.source.*member = "another";
    EXPECT_EQ(refused(other, model), std::string("s.json: ") + field + ": expected " +
                                         (c.source.*member) + " (the model's), found another");
  }
  const std::pair<const char*, std::function<void(ModelSpec&)>> changes[] = {
      {"layers: expected 3", [](ModelSpec& m) { m.num_layers = 3; }},
      {"kv_heads: expected 1", [](ModelSpec& m) { m.num_kv_heads = 1; }},
      {"head_dim: expected 8", [](ModelSpec& m) { m.head_dim = 8; }},
      {"rope: expected theta 500000, default", [](ModelSpec& m) { m.rope.theta = 500000; }},
      {"rope: expected theta 10000, linear, factor 2",
       [](ModelSpec& m) {
         m.rope.type = RopeType::kLinear;
         m.rope.factor = 2;
       }},
      {"config_sha256: expected ", [](ModelSpec& m) { m.has_qkv_bias = true; }}};
  for (const auto& [message, change] : changes) {
    ModelSpec other = model;
    change(other);
    EXPECT_EQ(refused(c, other).find(std::string("s.json: ") + message), 0u) << refused(c, other);
  }
}

TEST_F(ScaleFile, OfAnotherSeedOrWithAMixThatDoesNotAddUpIsRefusedByTheField) {
  const ModelSpec model = model_of_two_layers();
  Calibration c = two_layers();
  add_model_fields(model, c.source);
  CalibrationSource here = c.source;
  here.seed = 8;
  EXPECT_EQ(message_of([&] { check_calibration(c, here, model, "s.json"); }),
            "s.json: seed: expected 8 (this run's), found 7");
  c.source.seed.reset();
  EXPECT_EQ(message_of([&] { check_calibration(c, here, model, "s.json"); }),
            "s.json: seed: expected 8 (this run's), found none");
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = text_;
    text.replace(text.find(from), from.size(), to);
    rewrite(text);
    return message_of([&] { read_calibration(path_); });
  };
  EXPECT_NE(refused("\"language\": \"en\",\n    \"examples\": 1",
                    "\"language\": \"en\",\n    \"examples\": 2")
                .find("dataset.languages: expected 2 examples, found 3"),
            std::string::npos)
      << text_;
  EXPECT_NE(refused("\"task\": \"niah_single\"", "\"task\": 3").find("dataset.task_mix: expected"),
            std::string::npos);
  EXPECT_NE(refused("\"seed\": 7", "\"seed\": -7").find("seed: expected a whole number or null"),
            std::string::npos);
}

TEST_F(ScaleFile, AnotherMachineOrVersionLoadsWithANotice) {
  const ModelSpec model = model_of_two_layers();
  Calibration c = two_layers();
  add_model_fields(model, c.source);
  CalibrationSource here = c.source;
  here.machine = "another machine";
  here.tool_version = "2";
  const std::vector<std::string> notices = check_calibration(c, here, model, "s.json");
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[0].find("REVALIDATE: s.json: engine.version: calibrated with 1, here it is 2"),
            0u)
      << notices[0];
  EXPECT_NE(notices[1].find("engine.machine: calibrated with a machine, here it is another"),
            std::string::npos);
  EXPECT_TRUE(check_calibration(c, {}, model, "s.json").empty()) << "what is not known";
}

TEST_F(ScaleFile, AnEditedNumberIsNoticed) {
  std::string edited = text_;
  edited.replace(edited.find("0.125"), 5, "0.250");
  rewrite(edited);
  EXPECT_THROW(read_calibration(path_), FormatError);
}

TEST_F(ScaleFile, MutatedFilesLoadAsTheyWereOrAreRefused) {
  std::mt19937 random(7);
  const Calibration original = two_layers();
  for (int i = 0; i < 1500; ++i) {
    std::string mutant = text_;
    const size_t at = random() % mutant.size();
    if (i % 3 == 0) {
      mutant.resize(at);
    } else {
      mutant[at] = static_cast<char>(i % 3 == 1 ? random() % 256 : '0' + random() % 10);
    }
    rewrite(mutant);
    try {
      EXPECT_EQ(read_calibration(path_), original) << "mutant " << i;
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace kv
