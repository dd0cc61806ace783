#include "decide/verdict_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "decide/decide.h"
#include "tests/decide/simulated_study.h"
#include "tests/decide/worlds.h"

namespace kv {
namespace {

using Json = nlohmann::json;
using test::SimulatedStudy;
using test::World;

TEST(VerdictJson, HasTheDocumentedKeys) {
  const Verdict verdict = SimulatedStudy(test::offset_world(2)).run(DecideOptions::quick());
  const std::string text = verdict_json(verdict);
  EXPECT_EQ(text.back(), '\n');
  const Json json = Json::parse(text);
  EXPECT_EQ(json.at("outcome"), "SELECTIVE_BF16");
  EXPECT_EQ(json.at("layout"), "fp8_scale1/bf16=2");
  EXPECT_EQ(json.at("bf16_layers"), Json::array({2}));
  EXPECT_EQ(json.at("margin").at("preset"), "quick");
  EXPECT_EQ(json.at("margin").at("bucket"), 0.05);
  EXPECT_EQ(json.at("launch").at("vllm").at("flags"),
            "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 2");
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_EQ(json.at("thresholds").at("gain.capacity_min"), 1.7);
  ASSERT_FALSE(json.at("reasons").empty());
  for (const Json& reason : json.at("reasons")) {
    EXPECT_FALSE(reason.at("rule").get<std::string>().empty());
    EXPECT_FALSE(reason.at("record").get<std::string>().empty()) << reason;
    EXPECT_FALSE(reason.at("text").get<std::string>().empty());
  }
  EXPECT_TRUE(json.at("next").is_array());
  EXPECT_EQ(json.at("ablation").size(), 3u) << "none, one layer, its keys alone";
}

// A reason's record is one that exists: written by the run, or a row of the verdict's tables.
TEST(VerdictJson, EveryReasonPointsAtSomethingThatExists) {
  SimulatedStudy study(test::offset_world(2));
  const Json json = Json::parse(verdict_json(study.run(DecideOptions::quick())));
  std::set<std::string> ids = {json.at("aa").at("record")};
  for (const Json& row : json.at("aa").at("buckets")) ids.insert(row.at("record"));
  const Records& records = study.records();
  for (const auto& r : records.ranges) ids.insert(r.record_id);
  for (const auto& r : records.arms) ids.insert(r.record_id);
  for (const auto& r : records.capacities) ids.insert(r.record_id);
  for (const Json& table : json.at("tables")) {
    EXPECT_TRUE(ids.insert(table.at("overall").at("record")).second) << "an id names one row";
    EXPECT_TRUE(ids.insert(table.at("validity").at("record")).second);
    for (const Json& row : table.at("buckets")) EXPECT_TRUE(ids.insert(row.at("record")).second);
  }
  for (const Json& reason : json.at("reasons")) {
    EXPECT_TRUE(ids.contains(reason.at("record"))) << reason;
  }
}

TEST(VerdictJson, NothingAcceptedIsNull) {
  World world;
  world.supported = [](const std::string&) { return false; };
  const Json json = Json::parse(verdict_json(SimulatedStudy(world).run(DecideOptions::quick())));
  EXPECT_TRUE(json.at("layout").is_null());
  EXPECT_EQ(json.at("launch"), Json::object());
  EXPECT_EQ(json.at("exit_code"), 20);
}

TEST(VerdictJson, NumbersThatAreNotFiniteAreNull) {
  Verdict verdict;
  verdict.aa_kld = std::nan("");
  verdict.n_required = INFINITY;
  const Json json = Json::parse(verdict_json(verdict));
  EXPECT_TRUE(json.at("aa").at("kld").is_null());
  EXPECT_TRUE(json.at("n_required").is_null());
}

}  // namespace
}  // namespace kv
