#include <gtest/gtest.h>

#include <cmath>

#include "kvscale/error.h"
#include "report/scan_report.h"
#include "tests/report/scan_cases.h"

namespace kv {
namespace {

TEST(ScanSentence, HarmlessModelIsSafeToTry) {
  EXPECT_EQ(scan_sentence(smollm2_scan()),
            "FP8 with scale 1.0 is safe to try on this model: no layer above 0.3 nats of score "
            "noise; every layout costs less than 0.02 nats of KLD.");
}

TEST(ScanSentence, OffsetLayerIsKeptInBf16) {
  EXPECT_EQ(scan_sentence(qwen_1_5b_scan()),
            "Layer 0 breaks under every FP8 layout (score noise 1.4 to 2.8 nats; its keys carry a "
            "constant offset: centred SQNR -2 dB): keep it in BF16; that brings KLD from 1.35 to "
            "0.017 nats under scale 1.0; layer 1 is doubtful (0.35 to 0.47 nats).");
}

TEST(ScanSentence, HardCaseIsNeitherSafeNorLost) {
  EXPECT_EQ(scan_sentence(qwen_0_5b_scan()),
            "Layers 0 and 1 break under some FP8 layouts (score noise 0.83 to 1.3 nats), layers 2 "
            "to 4 are doubtful (0.22 to 0.57 nats); KLD is 0.036 to 0.057 nats; calibrated scales "
            "harm: NLL +0.155 nats per tensor, -0.006 with scale 1.0: neither safe nor lost, let "
            "`kvscale decide` judge it on your prompts.");
}

TEST(ScanSentence, ARepairThatDoesNotHelpIsNotCalledOne) {
  ScanReport report = qwen_1_5b_scan();
  report.arms[5].kld = 1.1;
  EXPECT_NE(scan_sentence(report).find("keep it in BF16; that alone does not repair it, KLD goes "
                                       "from 1.35 to 1.1 nats under scale 1.0"),
            std::string::npos)
      << scan_sentence(report);
}

TEST(ScanSentence, WithoutARepairedArmTheRepairIsOnlyProposed) {
  ScanReport report = qwen_1_5b_scan();
  report.arms.resize(5);
  EXPECT_NE(scan_sentence(report).find("keep it in BF16; layer 1"), std::string::npos)
      << scan_sentence(report);
}

TEST(ScanSentence, ClippingUnderScaleOneAsksForAFinerLayout) {
  ScanReport report = smollm2_scan();
  report.ranges.clear();
  const PerLayout noise = {4, 0.1, 0.1, 0.1};
  for (int layer = 0; layer < 4; ++layer) {
    add_layer(report, {noise, noise, 12, 8, {}, layer == 2 ? 0.2 : 0.1});
  }
  report.arms[1].kld = 2.5;
  EXPECT_EQ(scan_sentence(report),
            "Layers 0 to 3 break under scale 1.0 (score noise 4 nats; up to 20.0 % of the keys "
            "clip), none under per tensor: use that; KLD goes from 2.5 to 0.0178 nats.");
}

TEST(ScanSentence, DoubtfulLayersAreNotCalledBroken) {
  ScanReport report = smollm2_scan();
  add_layer(report, {{0.4, 0.5, 0.45, 0.42}, {1, 1, 1, 1}});
  EXPECT_EQ(scan_sentence(report),
            "No layer breaks, but layer 30 is doubtful (0.4 to 0.5 nats); KLD is 0.012 to 0.019 "
            "nats: neither safe nor lost, let `kvscale decide` judge it on your prompts.");
}

TEST(ScanSentence, QuietKeysWithALargeLossAreNotCalledSafe) {
  ScanReport report = smollm2_scan();
  for (ArmRecord& arm : report.arms) arm.kld = arm.arm == "bf16" ? 0 : 0.5;
  const std::string sentence = scan_sentence(report);
  EXPECT_EQ(sentence.find("safe"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("costs 0.5 nats of KLD"), std::string::npos) << sentence;
}

TEST(ScanSentence, FewEqualTopTokensAreNotSafeHoweverSmallTheLoss) {
  ScanReport report = smollm2_scan();
  for (ArmRecord& arm : report.arms) arm.same_top = arm.arm == "bf16" ? 1 : 0.749;
  const std::string sentence = scan_sentence(report);
  EXPECT_EQ(sentence.find("safe"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("only 74.9 % of the top tokens are those of BF16"), std::string::npos)
      << sentence;
}

TEST(ScanSentence, ALossThatIsNotANumberIsNotSafe) {
  ScanReport report = smollm2_scan();
  report.arms[1].kld = std::nan("");
  EXPECT_EQ(scan_sentence(report).find("safe"), std::string::npos) << scan_sentence(report);
  report = smollm2_scan();
  report.arms[3].kld = std::nan("");
  EXPECT_EQ(scan_sentence(report).find("every layout costs less"), std::string::npos)
      << scan_sentence(report);
}

TEST(ScanSentence, NoiseThatIsNotANumberBreaksTheLayer) {
  ScanReport report = smollm2_scan();
  for (RangeRecord& record : report.ranges) {
    if (record.layer == 3 && record.side == "k") record.noise_mean = std::nan("");
  }
  EXPECT_TRUE(scan_sentence(report).starts_with("Layer 3 breaks under every FP8 layout"))
      << scan_sentence(report);
}

TEST(ScanSentence, OneLayoutIsCalledByItsName) {
  ScanReport report = qwen_1_5b_scan();
  std::erase_if(report.ranges, [](const RangeRecord& r) { return r.layout != "fp8_tensor"; });
  EXPECT_TRUE(scan_sentence(report).starts_with("Layer 0 breaks under per tensor (score noise 1.4"))
      << scan_sentence(report);
}

TEST(ScanSentence, RefusesScansThatSayNothing) {
  ScanReport report = smollm2_scan();
  report.arms.erase(report.arms.begin());
  EXPECT_THROW(scan_sentence(report), ValueError);  // no control
  report = smollm2_scan();
  report.ranges.clear();
  EXPECT_THROW(scan_sentence(report), ValueError);
  report = smollm2_scan();
  report.ranges.push_back(report.ranges.front());
  EXPECT_THROW(scan_sentence(report), ValueError);  // the same record twice
  report = smollm2_scan();
  report.ranges.front().side = "q";
  EXPECT_THROW(scan_sentence(report), ValueError);
}

}  // namespace
}  // namespace kv
