#include "targets/targets.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "kvscale/error.h"

namespace kv {
namespace {

const std::vector<std::string> kLayouts = {"fp8_scale1", "fp8_tensor", "fp8_head",
                                           "fp8_token_head"};

TEST(Targets, EveryRowSaysEveryLayoutWithNumericsAndSource) {
  std::set<std::string_view> names;
  for (const TargetRow& row : targets()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.name.starts_with(row.engine)) << row.name;
    EXPECT_FALSE(row.source.empty()) << row.name;
    EXPECT_TRUE(row.round == "nearest" || row.round == "truncate") << row.name;
    ASSERT_EQ(row.layouts.size(), kLayouts.size()) << row.name;
    for (size_t i = 0; i < kLayouts.size(); ++i) {
      const LayoutSupport& layout = row.layouts[i];
      EXPECT_EQ(layout.layout, kLayouts[i]) << row.name;
      EXPECT_TRUE(layout.math == "bf16" || layout.math == "fp8") << row.name;
      EXPECT_FALSE(!layout.supported && layout.note.empty()) << row.name << ": no reason given";
    }
  }
  EXPECT_EQ(names.size(), 12u);
}

TEST(Targets, AnEngineAloneMeansItsFirstRow) {
  EXPECT_EQ(find_target("vllm").name, "vllm:flash_attn3");
  EXPECT_EQ(find_target("vllm:cpu").round, "truncate");
  for (const std::string& layout : kLayouts) EXPECT_TRUE(support(layout, "vllm").supported);
  EXPECT_EQ(engines(),
            (std::vector<std::string_view>{"vllm", "sglang", "tensorrt-llm", "tensorrt-llm-legacy",
                                           "edge-llm", "llama-server"}));
  EXPECT_EQ(support("fp8_tensor", "vllm").math, "fp8");
  EXPECT_EQ(support("fp8_token_head", "vllm").math, "bf16")
      << "the Triton kernel keeps Q in 16 bits";
}

TEST(Targets, LlamaServerHasALayoutOfItsOwnAndNoFp8) {
  for (const std::string& layout : kLayouts) {
    EXPECT_FALSE(support(layout, "llama-server").supported) << layout;
  }
  EXPECT_TRUE(support("q8_0", "llama-server").supported);
  EXPECT_NE(support("q8_0", "llama-server").note.find("not FP8"), std::string_view::npos);
  EXPECT_FALSE(support("q8_0", "vllm").supported);
  EXPECT_EQ(targets_that_run("q8_0"), (std::vector<std::string_view>{"llama-server:cpu"}));
  EXPECT_EQ(launch_flags({"q8_0", {}, {}}, "llama-server").text(), "-ctk q8_0 -ctv q8_0");
  EXPECT_EQ(launch_flags({"bf16", {}, {}}, "llama-server").text(), "-ctk f16 -ctv f16");
  EXPECT_FALSE(launch_flags({"q8_0", {0}, {}}, "llama-server").can_express);
  EXPECT_THROW(launch_flags({"fp8_scale1", {}, {}}, "llama-server"), ValueError);
}

TEST(Targets, CpuBackendRunsOneScaleALayerOnly) {
  EXPECT_TRUE(support("fp8_scale1", "vllm:cpu").supported);
  EXPECT_TRUE(support("fp8_tensor", "vllm:cpu").supported);
  EXPECT_FALSE(support("fp8_head", "vllm:cpu").supported);
  EXPECT_FALSE(support("fp8_token_head", "vllm:cpu").supported);
  EXPECT_THROW(launch_flags({"fp8_head", {}, {}}, "vllm:cpu"), ValueError);
}

TEST(Targets, ADeviceAfterTheNameIsHeldAgainstTheRow) {
  EXPECT_EQ(find_target("vllm:flash_attn3@h100").name, "vllm:flash_attn3");
  EXPECT_EQ(find_target("vllm@l4").name, "vllm:flashinfer") << "the first row that runs there";
  EXPECT_EQ(find_target("vllm@cpu").name, "vllm:cpu");
  EXPECT_THROW(find_target("vllm:flash_attn3@l4"), ValueError);
  EXPECT_THROW(find_target("vllm@h101"), ValueError);
}

TEST(Targets, Case99DevicesSayWhetherTheyConvertE4m3) {
  for (const char* device : {"h100", "b200", "rtx4090", "l4"}) {
    EXPECT_TRUE(find_device(device).converts_fp8) << device;
  }
  for (const char* device : {"a100", "rtx3090", "a10", "cpu"}) {
    EXPECT_FALSE(find_device(device).converts_fp8) << device;
    EXPECT_FALSE(find_device(device).note.empty()) << device;
  }
}

TEST(Targets, ALayoutThatDoesNotRunNamesTheTargetsThatRunIt) {
  for (const char* target :
       {"sglang", "edge-llm", "tensorrt-llm", "tensorrt-llm-legacy", "vllm:triton"}) {
    try {
      launch_flags({"fp8_head", {}, {}}, target);
      FAIL() << target;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("vllm:flash_attn3"), std::string::npos) << e.what();
    }
  }
}

TEST(Targets, EnginesWithoutSkippedLayersSaySo) {
  for (const char* target : {"sglang", "edge-llm", "tensorrt-llm", "tensorrt-llm-legacy"}) {
    EXPECT_FALSE(launch_flags({"fp8_scale1", {0}, {}}, target).can_express) << target;
    EXPECT_TRUE(launch_flags({"fp8_scale1", {}, {}}, target).can_express) << target;
  }
  EXPECT_EQ(launch_flags({"fp8_tensor", {}, {}}, "sglang").text(), "--kv-cache-dtype fp8_e4m3");
}

TEST(Targets, UnknownNamesAreErrorsThatListTheKnownOnes) {
  try {
    find_target("vlm");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("vllm:flash_attn3"), std::string::npos);
  }
  EXPECT_THROW(support("fp8", "vllm"), ValueError);
  EXPECT_THROW(launch_flags({"fp8_heads", {}, {}}, "vllm"), ValueError);
}

// vLLM's option to compute scales at run time is gone: a guide may name it only to say so.
TEST(Docs, Case30NoGuideReliesOnAnOptionThatIsGone) {
  const std::filesystem::path source = KV_SOURCE_DIR;
  size_t pages = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source / "docs")) {
    if (entry.path().extension() != ".md") continue;
    ++pages;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.find("calculate-kv-scales") == std::string::npos) continue;
      EXPECT_NE(line.find("gone"), std::string::npos) << entry.path() << ": " << line;
    }
  }
  EXPECT_GT(pages, 3u);
}

TEST(LaunchFlags, OfEveryLayout) {
  const auto flags = [](const std::string& layout, const std::string& target = "vllm") {
    return launch_flags({layout, {}, {}}, target);
  };
  EXPECT_EQ(flags("bf16").text(), "--kv-cache-dtype auto");
  EXPECT_EQ(flags("fp8_scale1").text(), "--kv-cache-dtype fp8");
  EXPECT_EQ(flags("fp8_tensor").text(), "--kv-cache-dtype fp8");
  EXPECT_NE(flags("fp8_tensor").notes.at(0).find("checkpoint"), std::string::npos);
  EXPECT_NE(flags("fp8_head").notes.at(0).find("checkpoint"), std::string::npos);
  EXPECT_EQ(flags("fp8_token_head").text(), "--kv-cache-dtype fp8_per_token_head");
  EXPECT_NE(flags("fp8_token_head").notes.at(0).find("TRITON_ATTN"), std::string::npos);
  EXPECT_EQ(flags("fp8_scale1", "vllm:triton").text(),
            "--kv-cache-dtype fp8 --attention-backend TRITON_ATTN");
  EXPECT_EQ(flags("fp8_token_head", "vllm:flashinfer").text(),
            "--kv-cache-dtype fp8_per_token_head");
}

TEST(LaunchFlags, SkippedLayersAreSeparateWords) {
  const LaunchFlags both = launch_flags({"fp8_scale1", {0, 1}, {}}, "vllm");
  EXPECT_EQ(both.text(), "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 0 1");
  EXPECT_TRUE(both.can_express);
  const LaunchFlags half = launch_flags({"fp8_scale1", {}, {3}}, "vllm");
  EXPECT_FALSE(half.can_express);
  EXPECT_TRUE(half.flags.empty());
  ASSERT_EQ(half.notes.size(), 1u);
}

}  // namespace
}  // namespace kv
