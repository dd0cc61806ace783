// `decide --target ENGINE` as a person runs it: from prompts to a directory that the engine loads.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/scales/scale_fixtures.h"
#include "text/sha256.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class DecideTarget : public testing::Test {
 protected:
  int run(const std::string& arguments) const {
    const std::string command = "cd " + folder_.path().string() + " && '" KVSCALE "' " + arguments +
                                " >stdout 2>stderr </dev/null";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string read(const std::string& name) const {
    return kv::fixtures::read_file(folder_ / name);
  }

  kv::fixtures::ScratchFolder folder_;
};

TEST_F(DecideTarget, CalibratedScalesEndInADirectoryThatTheEnginesRulesProve) {
  const std::string tiny = std::string(KV_SOURCE_DIR) + "/models/tiny";
  ASSERT_EQ(run("plant clipping " + tiny + " --out model"), 0) << read("stderr");
  const std::string decide =
      "decide model --target vllm:flash_attn3@h100 --margin quick --buckets 256 --documents 30 "
      "--questions 7 "
      "--tasks kv_recall --out run";
  ASSERT_EQ(run(decide), 0) << read("stdout") << read("stderr");
  const Json verdict = Json::parse(read("run/decision.json"));
  EXPECT_EQ(verdict["outcome"], "CALIBRATE_PER_TENSOR");
  EXPECT_EQ(verdict["layout"], "fp8_tensor/math=fp8") << "the numerics of the engine";
  EXPECT_EQ(verdict["target"], "vllm:flash_attn3@h100");
  const std::string launch = verdict["launch"]["vllm"]["flags"];
  EXPECT_NE(launch.find("run/export"), std::string::npos) << launch;
  EXPECT_NE(read("stdout").find("read back by its rules: proven"), std::string::npos);

  // The directory stands on its own, with the scales of the run.
  EXPECT_EQ(run("verify run/export --for vllm"), 0) << read("stdout");
  EXPECT_EQ(run("inspect run/export --for vllm --json"), 0) << read("stdout");
  // The verdict with its directory comes again from the run's records.
  EXPECT_EQ(run("recompute run --report --junit run/junit.xml"), 0) << read("stderr");
  EXPECT_NE(read("run/junit.xml").find("errors=\"0\""), std::string::npos);
  const Json record = Json::parse(read("run/export/kvscale_export.json"));
  EXPECT_EQ(record["scales"].size(), 12u);
  EXPECT_EQ(record["scale_sha256"], kv::sha256_hex(read("run/scales.json")));

  // The same command reads a directory that is there, for an engine may be serving from it, ...
  const auto written = fs::last_write_time(folder_ / "run/export/kvscale_export.json");
  ASSERT_EQ(run(decide), 0) << read("stderr");
  EXPECT_EQ(fs::last_write_time(folder_ / "run/export/kvscale_export.json"), written);
  EXPECT_EQ(Json::parse(read("run/decision.json")), verdict);
  // ... writes one that is not, ...
  fs::remove_all(folder_ / "run/export");
  ASSERT_EQ(run(decide), 0) << read("stderr");
  EXPECT_EQ(Json::parse(read("run/export/kvscale_export.json"))["scales"], record["scales"]);
  // ... and leaves another one alone, with the verdict and the command.
  fs::remove_all(folder_ / "run/export");
  fs::create_directories(folder_ / "run/export");
  ASSERT_EQ(run(decide), 0) << read("stderr");
  EXPECT_TRUE(fs::is_empty(folder_ / "run/export"));
  const Json next = Json::parse(read("run/decision.json"))["next"];
  const auto command = std::ranges::find_if(next, [](const Json& one) {
    return one["command"].get<std::string>().starts_with("kvscale export ");
  });
  ASSERT_NE(command, next.end());
  fs::remove_all(folder_ / "run/export");
  EXPECT_EQ(run((*command)["command"].get<std::string>().substr(8)), 0) << read("stderr");
}

TEST_F(DecideTarget, WhatAFlagAloneSwitchesOnNeedsNoDirectory) {
  ASSERT_EQ(run("decide tiny --target vllm:triton --margin quick --buckets 256 --documents 30 "
                "--questions 7 --tasks kv_recall --out run"),
            0)
      << read("stdout") << read("stderr");
  EXPECT_EQ(Json::parse(read("run/decision.json"))["outcome"], "KEEP_SCALE_ONE");
  EXPECT_FALSE(fs::exists(folder_ / "run/export"));
}

TEST_F(DecideTarget, WhatIsNoTargetIsRefusedBeforeAnythingRuns) {
  EXPECT_EQ(run("decide tiny --target vllm:flash_attn3@a100 --out run"), 1);
  EXPECT_NE(read("stderr").find("a100"), std::string::npos);
  EXPECT_EQ(run("decide tiny --set alfa=1 --out run"), 1);
  EXPECT_NE(read("stderr").find("expected one of"), std::string::npos);
  EXPECT_EQ(run("decide tiny --set documents=40 --out run"), 1);
  EXPECT_NE(read("stderr").find("--documents instead"), std::string::npos) << read("stderr");
  EXPECT_EQ(run("decide tiny --set token_clip_frac=nan --out run"), 1);
  EXPECT_NE(read("stderr").find("token_clip_frac"), std::string::npos);
  EXPECT_EQ(run("decide tiny --set traffic=512:1,99:1 --buckets 512,1024 --out run"), 1);
  EXPECT_NE(read("stderr").find("shares of the buckets 512, 1024"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "run/records.jsonl"));
}

}  // namespace
