#include "calibrate/calibration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

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

Calibration two_layers() {
  AmaxObserver observer(2, 2);
  show(observer, 0, {1, -56, 3, 4}, 2);
  show(observer, 0, {2, 5, -100, 4}, 2);
  show(observer, 1, {448, 0, 0, 0}, 2);
  return finish_calibration(
      observer, {"model-hash", "tokenizer-hash", "p.jsonl", "ids-hash", 1, 2, 2, {7, 8, 9, 12}});
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
  EXPECT_EQ(message_of([&] { finish_calibration(observer, {}); }),
            "calibration: layer 1: 0 values observed");
  show(observer, 1, {1, std::nanf("")}, 1);
  EXPECT_EQ(message_of([&] { finish_calibration(observer, {}); }),
            "calibration: layer 1 side k head 0: 1 values are not finite");
}

class ScaleFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / ("kvscale-scales-" + std::to_string(::getpid()) + ".json");
    write_calibration(path_, two_layers());
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    text_ = text.str();
  }
  void TearDown() override { fs::remove(path_); }
  void rewrite(const std::string& text) const { std::ofstream(path_) << text; }

  fs::path path_;
  std::string text_;
};

TEST_F(ScaleFile, RoundTrips) { EXPECT_EQ(read_calibration(path_), two_layers()); }

TEST_F(ScaleFile, OfAnotherModelLoadsNowhere) {
  EXPECT_NE(message_of([&] {
              check_calibration(two_layers(), "other", 2, 2, "s.json");
            }).find("s.json: model_sha256"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              check_calibration(two_layers(), "model-hash", 3, 2, "s.json");
            }).find("layers"),
            std::string::npos);
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
