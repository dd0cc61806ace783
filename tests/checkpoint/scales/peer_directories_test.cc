// Directories that LLM Compressor 0.14.0.1 wrote itself (peer_directories.py; weights are zeroed),
// against the scales that its own objects held.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/scale_set.h"
#include "tests/checkpoint/writers.h"

namespace kv {
namespace {

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(KV_SOURCE_DIR) / "tests/golden/checkpoint/scales" / name;
}

class PeerDirectory : public testing::TestWithParam<std::string> {};

TEST_P(PeerDirectory, IsReadAsTheToolHeldIt) {
  const ScaleSet set = read_scales(golden(GetParam()));
  const auto expected =
      nlohmann::json::parse(fixtures::read_file(golden(GetParam()) / "expected.json"));
  EXPECT_EQ(set.scales.size(), expected.size());
  for (const auto& entry : expected) {
    const ScaleSide side = entry.at(1) == "k" ? ScaleSide::kK : ScaleSide::kV;
    const StoredScale* found = set.find(entry.at(0), side);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->values, entry.at(2).get<std::vector<float>>());
  }
  EXPECT_TRUE(set.unread.empty());
}

INSTANTIATE_TEST_SUITE_P(LlmCompressor, PeerDirectory,
                         testing::Values("ct_tensor", "ct_head", "ct_default"),
                         [](const auto& name) { return name.param; });

TEST(PeerDirectories, TheDefaultObserverIsRecognisedByTheRelease) {
  EXPECT_EQ(diagnose(read_scales(golden("ct_tensor"))).health(), "healthy");
  const Diagnosis d = diagnose(read_scales(golden("ct_default")));
  ASSERT_EQ(d.warnings.size(), 1u);
  EXPECT_EQ(d.warnings[0].id, "ema");
}

}  // namespace
}  // namespace kv
