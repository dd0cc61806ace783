// What the loaders of engines held of kvscale's exports (recorded by tests/peers/vllm_loader.py, on
// every rank of 1, 2 and 8, and by tests/peers/sglang_loader.py) against what the rules say:
// writers and rules are both replayed.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/scales/export_checkpoint.h"
#include "targets/dry_run.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

using Json = nlohmann::json;

Json recorded(const std::string& engine) {
  return Json::parse(fixtures::read_file(std::filesystem::path(KV_SOURCE_DIR) /
                                         ("tests/golden/targets/" + engine + "_loader.json")));
}

std::string label(const Json& c) {
  return c.at("form").get<std::string>() + " " + c.at("layout").get<std::string>() + " of " +
         c.at("kv_heads").dump() + " heads" + (c.at("exact") ? ", exact" : "");
}

/// A model like the recorded one, exported with the recorded scales.
ScaleSet exported(const Json& c, const fixtures::ScratchFolder& folder) {
  const fixtures::ScaleFolder model(2);
  model.write();
  const std::string config =
      fixtures::replaced(fixtures::replaced(model.config(), "\"num_key_value_heads\":2",
                                            "\"num_key_value_heads\":" + c.at("kv_heads").dump()),
                         "\"num_attention_heads\":4", "\"num_attention_heads\":16");
  fixtures::write_file(model.path() / "config.json", config);
  ExportRequest request;
  request.model = model.path();
  request.out = folder / "out";
  request.form = export_form(c.at("form").get<std::string>());
  request.copy = true;  // the model lies in another scratch folder
  request.record.form = name(request.form);
  request.record.target = "vllm:flash_attn3";
  request.record.layout = c.at("layout").get<std::string>();
  request.record.k_stage = "post_rope";
  for (const Json& scale : c.at("written")) {
    const auto values = scale.at(2).get<std::vector<float>>();
    request.record.scales.push_back(
        {scale.at(0).get<int>(), scale.at(1).get<std::string>().at(0), values, values});
  }
  export_checkpoint(request);
  return read_scales(request.out);
}

/// The JSON that SGLang read, as its record says it was written.
ScaleSet json_of(const Json& c, const fixtures::ScratchFolder& folder) {
  Json layers = Json::object();
  for (const Json& scale : c.at("written")) layers[scale.at(0).dump()] = scale.at(2).at(0);
  fixtures::write_file(
      folder / "kv_cache_scales.json",
      Json({{"model_type", "llama"},
            {"kv_cache", {{"dtype", "float8_e4m3fn"}, {"scaling_factor", {{"0", layers}}}}}})
          .dump());
  return read_scales(folder / "kv_cache_scales.json");
}

const SideOutcome& outcome_of(const DryRun& run, const Json& held) {
  const LayerOutcome& layer = run.layers.at(held.at(0).get<size_t>());
  return held.at(1) == "k" ? layer.k : layer.v;
}

void expect_as_held(const ScaleSet& set, const Json& rank) {
  const int tp = rank.at("tp");
  SCOPED_TRACE("rank " + rank.at("rank").dump() + " of " + std::to_string(tp));
  const DryRun tensors = dry_run(set, {"vllm:flash_attn3", "", tp});
  const DryRun numbers = dry_run(set, {"vllm:cpu", "", tp});
  const auto at = rank.at("rank").get<size_t>();
  ASSERT_EQ(rank.at("held").size(), 2 * tensors.layers.size());
  for (const Json& held : rank.at("held")) {
    EXPECT_EQ(outcome_of(tensors, held).ranks.at(at), held.at(2).get<std::vector<float>>());
    EXPECT_EQ(outcome_of(numbers, held).ranks.at(at), std::vector<float>{held.at(3).get<float>()});
  }
}

TEST(VllmLoader, EveryRankHoldsWhatTheRulesSay) {
  const Json record = recorded("vllm");
  size_t ranks = 0;
  for (const Json& c : record.at("cases")) {
    SCOPED_TRACE(label(c));
    fixtures::ScratchFolder folder;
    const ScaleSet set = exported(c, folder);
    for (const Json& rank : c.at("ranks")) expect_as_held(set, rank);
    ranks += c.at("ranks").size();
  }
  EXPECT_EQ(ranks, 8u * (1 + 2 + 8)) << "4 kinds of export, 2 models, 3 degrees";
}

TEST(VllmLoader, TwoHeadsOnEightRanksAreReplicated) {
  const Json record = recorded("vllm");
  size_t ranks = 0;
  for (const Json& c : record.at("cases")) {
    if (c.at("layout") != "fp8_head" || c.at("kv_heads") != 2) continue;
    for (const Json& rank : c.at("ranks")) {
      if (rank.at("tp") != 8) continue;
      const size_t head = rank.at("rank").get<size_t>() / 4;  // 4 ranks hold each head
      EXPECT_EQ(rank.at("held").at(0).at(2), Json::array({c.at("written").at(0).at(2).at(head)}));
      ++ranks;
    }
  }
  EXPECT_EQ(ranks, 8u);
}

TEST(SglangLoader, HoldsWhatTheRulesSay) {
  const Json record = recorded("sglang");
  size_t scales = 0;
  for (const Json& c : record.at("cases")) {
    SCOPED_TRACE(label(c));
    fixtures::ScratchFolder folder;
    const ScaleSet set = c.at("form") == "sglang-json" ? json_of(c, folder) : exported(c, folder);
    const DryRun run = dry_run(set, {"sglang", "", 1});
    ASSERT_EQ(c.at("held").size(), 2 * run.layers.size());
    for (const Json& held : c.at("held")) {
      EXPECT_EQ(outcome_of(run, held).ranks.at(0), held.at(2).get<std::vector<float>>());
      ++scales;
    }
  }
  EXPECT_EQ(scales, 5u * 2 * 2 * 2) << "5 kinds of export, 2 models, 2 layers, 2 sides";
}

}  // namespace
}  // namespace kv
