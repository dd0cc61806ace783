#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "kvscale/error.h"
#include "report/eval_report.h"
#include "report/plain_text.h"
#include "report/plan_report.h"
#include "report/scan_report.h"
#include "report/verdict_report.h"
#include "tests/report/golden.h"
#include "tests/report/scan_cases.h"
#include "tests/report/verdict_cases.h"

namespace kv {
namespace {

using Json = nlohmann::json;

/// The widest line, in columns; commands in Markdown are never broken and do not count.
int widest(const std::string& text) {
  std::istringstream lines(text);
  int most = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    ")) most = std::max(most, columns(line));
  }
  return most;
}

std::string hostile_name() {
  return "model \x1b[2J\x07 | <b> " + std::string(300, 'w') + " \xff\xfe 日本語の名前";
}

PlanInput plan_80() {
  PlanInput input;
  input.model = "80 layers";
  input.layers.assign(80, LayerGeometry{8, 128, 0});
  input.context = 131072;
  return input;
}

TEST(ScanText, Goldens) {
  expect_golden("scan_smollm2.txt", scan_text(smollm2_scan(), {}));
  expect_golden("scan_qwen_1_5b.txt", scan_text(qwen_1_5b_scan(), {}));
  expect_golden("scan_qwen_0_5b.txt", scan_text(qwen_0_5b_scan(), {}));
}

TEST(ScanText, PlainStyleIsAsciiAndColourIsAskedFor) {
  const std::string plain = scan_text(qwen_1_5b_scan(), {.unicode = false});
  for (const char c : plain) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int{c};
  const std::string color = scan_text(qwen_1_5b_scan(), {.color = true, .unicode = false});
  EXPECT_NE(color.find("\x1b[31mbroken"), std::string::npos);
  std::string stripped;
  for (size_t i = 0; i < color.size(); ++i) {
    if (color[i] == '\x1b') i = color.find('m', i) + 1;
    if (i < color.size()) stripped += color[i];
  }
  EXPECT_EQ(stripped, plain);
}

TEST(ScanText, LinesKeepToTheWidthWithHostileNames) {
  for (ScanReport report : {smollm2_scan(), qwen_0_5b_scan(), small_scan()}) {
    report.model.name = hostile_name();
    report.run.command = hostile_name();
    add_arm(report, "fp8_head/bf16=0,3k,7v,9,11,12,13,14,15,16,17,18,19,20/math=fp8/round=truncate",
            2, 12345.678, 0.5, 1234.5);
    for (const int width : {100, 80}) {
      const std::string text = scan_text(report, {.width = width});
      EXPECT_LE(widest(text), width);
      EXPECT_EQ(text.find('\x1b'), std::string::npos);
      EXPECT_FALSE(text.ends_with('\n'));
    }
  }
  EXPECT_THROW(scan_text(small_scan(), {.width = 40}), ValueError);
}

TEST(ScanJson, HasTheDocumentedKeys) {
  const Json json = Json::parse(scan_json(qwen_1_5b_scan()));
  ASSERT_EQ(json["layers"].size(), 28u * 3 * 4);
  for (const Json& layer : json["layers"]) {
    const bool is_kv = layer.at("side") == "kv";
    for (const char* key : {"layer", "layout", "block_damage"}) EXPECT_TRUE(layer.contains(key));
    for (const char* key : {"sqnr_db", "centred_sqnr_db", "clip_frac", "zero_frac", "amax"}) {
      EXPECT_EQ(layer.contains(key), !is_kv) << key;
    }
    EXPECT_EQ(layer.contains("score_noise"), layer["side"] == "k");
    EXPECT_EQ(layer.contains("value_noise"), layer["side"] == "v");
  }
  const Json& first = json["layers"][0];
  EXPECT_EQ(first["score_noise"]["mean"], 2.77);
  EXPECT_EQ(first["score_noise"]["worst"], 7.70);
  EXPECT_EQ(first["score_noise"]["heads"].size(), 12u);
  EXPECT_EQ(first["flag"], "broken");
  ASSERT_EQ(json["arms"].size(), 7u);
  EXPECT_EQ(json["arms"][1]["arm"], "fp8_scale1");
  EXPECT_EQ(json["arms"][1]["kld"], 1.348);
  for (const char* key : {"arm", "tokens", "nll", "kld", "kld_se", "same_top", "buckets"}) {
    EXPECT_TRUE(json["arms"][1].contains(key)) << key;
  }
  EXPECT_EQ(json["bf16_layers"]["fp8_tensor"], Json::parse("[0]"));
  EXPECT_EQ(json["sentence"], scan_sentence(qwen_1_5b_scan()));
}

TEST(ScanJson, NonFiniteNumbersAreNullAndBadTextIsReplaced) {
  ScanReport report = small_scan();
  report.arms[1].kld_se = NAN;
  report.ranges[0].sqnr_db = INFINITY;
  report.model.name = "\xff";
  const Json json = Json::parse(scan_json(report));
  EXPECT_TRUE(json["arms"][1]["kld_se"].is_null());
  EXPECT_TRUE(json["layers"][0]["sqnr_db"].is_null());
  EXPECT_EQ(json["model"]["name"], "\xef\xbf\xbd");
}

TEST(Plan, EightyLayersExactly) {
  const Json json = Json::parse(plan_json(plan_80()));
  ASSERT_EQ(json["layouts"].size(), 5u);
  const auto layout = [&](size_t i) { return json["layouts"][i]; };
  EXPECT_EQ(layout(0)["name"], "bf16");
  EXPECT_EQ(layout(0)["total_bytes"], int64_t{40} << 30);
  EXPECT_EQ(layout(2)["code_bytes"], int64_t{20} << 30);
  EXPECT_EQ(layout(2)["static_scale_bytes"], 640);
  EXPECT_EQ(layout(3)["static_scale_bytes"], 5120);
  EXPECT_EQ(layout(4)["scale_bytes"], int64_t{640} << 20);
  EXPECT_EQ(layout(4)["total_bytes"], (int64_t{20} << 30) + (int64_t{640} << 20));
  EXPECT_EQ(layout(0)["bytes_per_token"], 327680);
  EXPECT_EQ(layout(0)["tokens_that_fit"], 131072);
  // 40 GiB less 640 B of static scales leaves all but one of the 16,384 blocks of 16 tokens.
  EXPECT_EQ(layout(2)["tokens_that_fit"], 2 * 131072 - 16);
  for (const Json& one : json["layouts"]) {
    for (const char* key : {"code_bytes", "scale_bytes", "total_bytes", "bytes_per_token",
                            "static_scale_bytes", "tokens_that_fit"}) {
      EXPECT_TRUE(one.at(key).is_number_integer()) << key;
    }
  }
}

TEST(Plan, TextNamesEveryTerm) {
  const std::string text = plan_text(plan_80(), {});
  for (const char* term :
       {"640 B", "5,120 B", "20 GiB", "640 MiB", "20.625 GiB", "40 GiB", "3.125 %"}) {
    EXPECT_NE(text.find(term), std::string::npos) << term;
  }
  EXPECT_LE(widest(text), 100);
  expect_golden("plan_80.txt", text);
}

TEST(Plan, InlineOverheadByHeadSize) {
  PlanInput input = plan_80();
  for (const auto& [head_dim, percent] :
       {std::pair{64, "6.25 %"}, {128, "3.125 %"}, {256, "1.5625 %"}}) {
    for (LayerGeometry& layer : input.layers) layer.head_dim = head_dim;
    EXPECT_NE(plan_text(input, {}).find(percent), std::string::npos) << head_dim;
  }
}

TEST(Plan, Case80AStateLeavesLessOfTheGainTheShorterTheContext) {
  PlanInput input;
  input.model = "hybrid";
  input.layers.assign(6, LayerGeometry{8, 64, 0});
  input.context = 32768;
  input.state_layers = 18;
  input.state_bytes = 18 * 2'146'304;
  const std::vector<PlanRow> rows = plan_rows(input);
  for (const int64_t tokens : {1024, 8192, 32768}) {
    const double state = 18 * 2'146'304.0, fp8 = 6.0 * 8 * 64 * 2 * static_cast<double>(tokens);
    EXPECT_NEAR(plan_gain(input, rows[1], tokens), (state + 2 * fp8) / (state + fp8), 1e-5);
  }
  const std::string text = plan_text(input, {});
  for (const char* word :
       {"18 layers more keep a recurrent state of", "1.140x", "1.566x", "1.839x"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  EXPECT_EQ(text.find("2.000"), std::string::npos) << text;
  const Json json = Json::parse(plan_json(input));
  EXPECT_EQ(json["state_bytes"], input.state_bytes);
  EXPECT_LT(json["layouts"][1]["capacity_gain"].get<double>(), 1.85);
  // A state that takes all of the memory leaves no room for a token.
  input.budget_bytes = input.state_bytes - 1;
  EXPECT_EQ(plan_rows(input)[1].tokens_that_fit, 0);
}

TEST(Plan, Case78PagesOfUnequalHeadsAreNamedAndThatTheyDoNotDivide) {
  PlanInput input;
  input.model = "two head sizes";
  input.layers = {{1, 256, 512}, {1, 512, 0}};
  input.context = 4096;
  const std::string text = plan_text(input, {.width = 200});
  EXPECT_NE(text.find("fp8_scale1: blocks take 8,192 B and 16,384 B by kind of layer\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("fp8_token_head: blocks take 8,320 B and 16,512 B by kind of layer, which do "
                      "not divide"),
            std::string::npos)
      << text;
  EXPECT_EQ(plan_text(plan_80(), {}).find("by kind of layer"), std::string::npos);
}

TEST(Plan, WindowsMixedLayersAndBf16Layers) {
  PlanInput input;
  input.model = hostile_name();
  input.layers = {{4, 256, 512}, {4, 256, 0}, {4, 256, 512}};
  input.context = 1000;
  input.budget_bytes = int64_t{1} << 30;
  input.bf16_layers = {1};
  const std::vector<PlanRow> rows = plan_rows(input);
  ASSERT_EQ(rows.size(), 9u);
  // Two layers keep 512 tokens, one all 1,000; 4 heads x 256 values x 2 sides x 2 bytes.
  EXPECT_EQ(rows[0].bytes.total_bytes(), (512 + 1000 + 512) * 4 * 256 * 2 * 2);
  EXPECT_EQ(rows[5].name, "fp8_scale1/bf16=1");
  EXPECT_EQ(rows[5].bytes.code_bytes, (512 + 512) * 4 * 256 * 2 + 1000 * 4 * 256 * 2 * 2);
  EXPECT_EQ(rows[0].blocks, 63);
  const std::string text = plan_text(input, {.width = 80});
  EXPECT_LE(widest(text), 80);
  EXPECT_NE(text.find("8 slots stay empty"), std::string::npos) << text;
}

/// DeepSeek-V2-Lite: one vector a token, in the layouts that latents have.
TEST(LatentPlan, Case81OneVectorATokenAndNoLayoutPerHead) {
  PlanInput input;
  input.model = "latents";
  input.layers.assign(27, LayerGeometry{1, 576, 0, 512});
  input.context = 32768;
  const std::vector<PlanRow> rows = plan_rows(input);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].bytes_per_token, 27 * 1152);
  EXPECT_EQ(rows[2].name, "fp8_tensor");
  EXPECT_EQ(rows[2].bytes_per_token, 27 * 576);
  EXPECT_EQ(rows[3].name, "fp8_ds_mla");
  EXPECT_EQ(rows[3].bytes_per_token, 27 * 656);
  const std::string text = plan_text(input, {});
  for (const char* term : {"27 layers x 32,768 tokens x 576 x 2 B", "x (512 x 1 + 64 x 2) B",
                           "27 layers x 32,768 tokens x 4 tiles x 4 B", "27 layers x 4 B = 108 B",
                           "whose beginning is V"}) {
    std::string flat = text;
    for (size_t at; (at = flat.find("\n")) != std::string::npos;) flat.replace(at, 1, " ");
    for (size_t at; (at = flat.find("  ")) != std::string::npos;) flat.replace(at, 1, "");
    EXPECT_NE(flat.find(term), std::string::npos) << term << "\n" << text;
  }
}

TEST(Plan, RefusesWhatCannotBePlanned) {
  PlanInput input = plan_80();
  input.context = 0;
  EXPECT_THROW(plan_rows(input), ValueError);
  input = plan_80();
  input.layers.clear();
  EXPECT_THROW(plan_rows(input), ValueError);
  input = plan_80();
  input.bf16_layers = {80};
  EXPECT_THROW(plan_rows(input), ValueError);
  input = plan_80();
  input.block_size = 0;
  EXPECT_THROW(plan_rows(input), ValueError);
}

EvalReport eval_case() {
  EvalReport report;
  for (const char* arm : {"bf16", "fp8_scale1"}) {
    for (const char* document : {"a", "b"}) {
      for (const char* bucket : {"512", "1024"}) {
        LogitRecord record;
        record.record_id = std::string("logit/") + arm + document + bucket;
        record.arm = arm;
        record.document = document;
        record.bucket = bucket;
        record.n = 10;
        record.nll_ctrl = 20;
        record.nll_cand = arm == std::string("bf16") ? 20 : 22;
        record.kld = arm == std::string("bf16") ? 0 : document == std::string("a") ? 0.1 : 0.3;
        record.same_top = 9;
        report.logits.push_back(record);
      }
    }
  }
  return report;
}

TEST(EvalJson, SumsUpByArmAndBucket) {
  const Json json = Json::parse(eval_json(eval_case()));
  ASSERT_EQ(json["arms"].size(), 2u);
  const Json& arm = json["arms"][1];
  EXPECT_EQ(arm["arm"], "fp8_scale1");
  EXPECT_EQ(arm["tokens"], 40);
  EXPECT_NEAR(arm["nll"].get<double>(), 2.2, 1e-12);
  EXPECT_NEAR(arm["kld"].get<double>(), 0.02, 1e-12);
  // u = +-0.2 for the two documents of 20 tokens: sqrt(2 * 0.2^2) / 40 * sqrt(2).
  EXPECT_NEAR(arm["kld_se"].get<double>(), 0.01, 1e-12);
  EXPECT_NEAR(arm["same_top"].get<double>(), 0.9, 1e-12);
  ASSERT_EQ(arm["buckets"].size(), 2u);
  EXPECT_EQ(arm["buckets"][0]["bucket"], "512");
  EXPECT_EQ(arm["buckets"][0]["tokens"], 20);
  for (const char* key : {"nll", "kld", "kld_se", "same_top"}) {
    EXPECT_TRUE(arm["buckets"][1].contains(key)) << key;
  }
}

TEST(EvalText, ShowsBucketsWithErrors) {
  const std::string text = eval_text(eval_case(), {});
  EXPECT_NE(text.find("0.0200 ± 0.0100 (n 20)"), std::string::npos) << text;
  EXPECT_LE(widest(text), 100);
}

TEST(VerdictMarkdown, SaysOutcomeReasonsFlagsAndNextCommands) {
  const VerdictCase selective = selective_case();
  const std::string text = verdict_markdown(report_of(selective), {});
  EXPECT_TRUE(text.starts_with("# SELECTIVE_BF16: Deploy fp8_scale1/bf16=0\n")) << text;
  for (const char* part :
       {"-65.0 [-71.0, -58.0]", "130/0", "material loss", "[range/0/k/fp8_scale1]",
        "--kv-cache-dtype-skip-layers 0", "kvscale decide MODEL --margin standard"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(VerdictMarkdown, APassSaysByHowMuchItIsNotWorse) {
  const VerdictCase keep = keep_case();
  const std::string sentence = comparison_sentence(keep.verdict.tables[0], keep.verdict.options);
  EXPECT_EQ(sentence,
            "fp8_scale1 is not worse than BF16 by more than 5 points in any bucket and 2.5 points "
            "overall (one-sided level 0.025, n >= 200 a bucket).");
  for (const VerdictCase& one : {keep_case(), selective_case(), inconclusive_case()}) {
    const std::string text = verdict_markdown(report_of(one), {});
    EXPECT_EQ(text.find("significant difference"), std::string::npos);
    EXPECT_LE(widest(text), 100);
    EXPECT_NE(text.find("5 points a bucket"), std::string::npos);  // the margin, always
  }
}

TEST(VerdictMarkdown, HostileTextStaysInItsCell) {
  VerdictCase one = keep_case();
  one.verdict.tables[0].buckets[0].bucket = "5|12\x1b[2J";
  one.verdict.reasons[0].text = hostile_name();
  VerdictReport report = report_of(one);
  report.model.name = hostile_name();
  const std::string text = verdict_markdown(report, {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("| 5/12"), std::string::npos);
  EXPECT_LE(widest(text), 100);
}

}  // namespace
}  // namespace kv
