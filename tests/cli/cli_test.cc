// The program as a person runs it: in an empty folder, output and exit code.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Result {
  int code = -1;
  std::string out, err;
};

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "kvscale-cli-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result run(const std::string& arguments) const {
    const std::string command =
        "cd " + folder_.string() + " && '" KVSCALE "' " + arguments + " >out 2>err </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out"), read("err")};
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  fs::path folder_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// "17,24,31,..." : n token ids of the built-in model.
std::string ids(int n, int step = 7919) {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i == 0 ? "" : ",") + std::to_string(17 + i * step % 900);
  return out;
}

TEST_F(Cli, BareNameListsTheCommands) {
  const Result r = run("");
  EXPECT_EQ(r.code, 0);
  for (const char* command : {"plan", "scan", "calibrate", "eval", "decide", "bench"})
    EXPECT_TRUE(has(r.out, command));
}

TEST_F(Cli, HelpOfEveryCommandAnswers) {
  for (const std::string command : {"plan", "scan", "calibrate", "eval", "decide", "bench"}) {
    EXPECT_EQ(run(command + " --help").code, 0) << command;
  }
}

TEST_F(Cli, PlanOfEightyLayersAtFullContext) {
  const Result r = run("plan --layers 80 --kv-heads 8 --head-dim 128 --context 131072");
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* number :
       {"640 B", "5,120 B", "20 GiB", "640 MiB", "20.625 GiB", "40 GiB", "3.125 %"}) {
    EXPECT_TRUE(has(r.out, number)) << number << "\n" << r.out;
  }
  EXPECT_TRUE(has(run("plan --layers 1 --kv-heads 1 --head-dim 64 --context 16").out, "6.25 %"));
  EXPECT_TRUE(has(run("plan --layers 1 --kv-heads 1 --head-dim 256 --context 16").out, "1.5625 %"));
}

TEST_F(Cli, PlanJsonHasExactIntegers) {
  const Result r = run("plan --layers 80 --kv-heads 8 --head-dim 128 --context 131072 --json");
  const Json json = Json::parse(r.out);
  const int64_t gib = int64_t{1} << 30;
  for (const Json& layout : json.at("layouts")) {
    const std::string name = layout.at("name");
    if (name == "bf16") {
      EXPECT_EQ(layout.at("total_bytes"), 40 * gib);
    } else if (name == "fp8_head") {
      EXPECT_EQ(layout.at("static_scale_bytes"), 5120);
    } else if (name == "fp8_token_head") {
      EXPECT_EQ(layout.at("scale_bytes"), int64_t{640} << 20);
    }
    EXPECT_TRUE(layout.contains("tokens_that_fit") && layout.contains("bytes_per_token")) << name;
  }
}

TEST_F(Cli, PlanOfTheBuiltInModel) {
  const Result r = run("plan tiny --json");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(Json::parse(r.out).at("layouts").at(0).at("bytes_per_token"), 6 * 2 * 2 * 64 * 2);
}

TEST_F(Cli, WrongUsageIsOneErrorAndExitCode1) {
  EXPECT_EQ(run("scna tiny").code, 1);
  EXPECT_EQ(run("scan").code, 1);
  const Result missing = run("scan absent.gguf");
  EXPECT_EQ(missing.code, 1);
  EXPECT_TRUE(has(missing.err, "absent.gguf")) << missing.err;
  const Result arm = run("eval tiny --arms fp8_tenser");
  EXPECT_EQ(arm.code, 1);
  EXPECT_TRUE(has(arm.err, "did you mean fp8_tensor?")) << arm.err;
  const Result backend = run("scan tiny --backend avx9");
  EXPECT_EQ(backend.code, 1);
  EXPECT_TRUE(has(backend.err, "avx9")) << backend.err;
}

TEST_F(Cli, ScanWritesItsFilesResumesAndRefusesAnotherRunsFolder) {
  write("p.jsonl", "{\"id\": \"a\", \"ids\": [" + ids(200) + "]}\n");
  const Result first = run("scan tiny --prompts p.jsonl --out run --json");
  ASSERT_EQ(first.code, 0) << first.err;
  const Json json = Json::parse(first.out);
  EXPECT_EQ(json.at("layers").size(), 6u * 3 * 4);
  EXPECT_GE(json.at("arms").size(), 5u);
  EXPECT_TRUE(fs::exists(folder_ / "run/report.html"));
  EXPECT_TRUE(fs::exists(folder_ / "run/scales.json"));
  const std::string records = read("run/records.jsonl");
  const Result again = run("scan tiny --prompts p.jsonl --out run --json");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read("run/records.jsonl"), records);
  EXPECT_EQ(Json::parse(again.out).at("arms"), json.at("arms"));
  // What ran is known after a second start, in which nothing was left to run.
  const Json ran = json.at("run"), still = Json::parse(again.out).at("run");
  EXPECT_FALSE(ran.at("kernels").empty());
  for (const char* key : {"kernels", "scale_sources", "cache_bytes"})
    EXPECT_EQ(still.at(key), ran.at(key)) << key;
  const Result other = run("scan tiny --prompts p.jsonl --out run --stride 8");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "configuration")) << other.err;
}

TEST_F(Cli, ScanRefusesPromptsInWhichNothingIsMeasured) {
  write("p.jsonl", "{\"id\": \"a\", \"ids\": [" + ids(64) + "]}\n");
  const Result r = run("scan tiny --prompts p.jsonl");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.err, "at least 65 tokens, found at most 64")) << r.err;
}

TEST_F(Cli, NumbersOutOfRangeAreRefusedBeforeTheModelIsLoaded) {
  for (const char* command :
       {"bench tiny -p 0", "bench tiny -d -5", "plan tiny --bf16-layers -1",
        "plan tiny --bf16-layers 4294967296", "plan tiny --bf16-layers 6", "plan tiny --layers 3",
        "plan tiny --budget 1e12", "decide tiny --documents 1", "decide tiny --margin-bucket -3",
        "decide tiny --buckets 0", "decide tiny --buckets 512,512", "decide tiny --buckets 99999",
        "decide tiny --tasks nope", "decide tiny --tasks copy_span,copy_span",
        "decide tiny --tasks all,copy_span"}) {
    const Result r = run(command);
    EXPECT_EQ(r.code, 1) << command << r.err;
    EXPECT_TRUE(has(r.err, "expected") || has(r.err, "not in")) << command << ": " << r.err;
    EXPECT_FALSE(has(r.err, "load weights")) << command;
  }
}

TEST_F(Cli, DecideJudgesTheUsersOwnAnswersByEveryCheck) {
  const char* checks[] = {"exact", "contains", "regex", "number", "json_equal"};
  const char* answers[] = {"kelu", "kelu", "ke.*", "12", "{}"};
  const auto prompts = [&](const char* first_answer) {
    std::string out;
    for (int i = 0; i < 40; ++i) {
      out += "{\"id\": \"p" + std::to_string(i) + "\", \"ids\": [" + ids(70 + i, 7 + 2 * i) +
             "], \"check\": \"" + checks[i % 5] + "\", \"answer\": \"" +
             (i == 0 ? first_answer : answers[i % 5]) + "\"}\n";
    }
    return out;
  };
  write("p.jsonl", prompts("kelu"));
  const std::string command = "decide tiny --prompts p.jsonl --margin quick --buckets 256 --out d";
  const Result r = run(command + " --json");
  // Random tokens have no answer that the model could know: no bucket is left to show a loss in.
  EXPECT_EQ(r.code, 10) << r.err;
  EXPECT_EQ(Json::parse(r.out).at("outcome"), "INCONCLUSIVE");
  const std::string records = read("d/records.jsonl");
  EXPECT_FALSE(has(r.out, "near-duplicates"));
  EXPECT_EQ(run(command + " --json").out, r.out);
  EXPECT_EQ(read("d/records.jsonl"), records);
  write("p.jsonl", prompts("dafo"));
  const Result edited = run(command);
  EXPECT_EQ(edited.code, 1);
  EXPECT_TRUE(has(edited.err, "configuration")) << edited.err;
  const Result generators = run("decide tiny --prompts p.jsonl --documents 40");
  EXPECT_TRUE(generators.code == 1 && has(generators.err, "--documents")) << generators.err;
}

TEST_F(Cli, PromptsOfOneDocumentStayTogetherAndCountAsOne) {
  std::string prompts;
  for (int i = 0; i < 48; ++i) {
    prompts += "{\"id\": \"p" + std::to_string(i) + "\", \"cluster\": \"book " +
               std::to_string(i / 3) + "\", \"ids\": [" + ids(70 + i, 7 + 2 * i) +
               "], \"answer\": \"kelu\"}\n";
  }
  write("p.jsonl", prompts);
  const Result r = run(
      "decide tiny --prompts p.jsonl --margin quick --buckets 256 --set min_documents=2 --out d");
  EXPECT_EQ(r.code, 10) << r.err;
  std::map<std::string, std::set<std::string>> blocks;
  std::istringstream lines(read("d/records.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record["kind"] != "example" || record["block"] == "AA") continue;
    blocks[record["document"]].insert(record["block"]);
  }
  const Json aa = Json::parse(read("d/decision.json"))["aa"]["buckets"][0];
  EXPECT_EQ(aa["n"].get<int>(), 3 * aa["documents"].get<int>()) << aa;
  for (const auto& [document, where] : blocks) EXPECT_EQ(where.size(), 1u) << document;
}

TEST_F(Cli, DecideWantsPromptsForEveryBlock) {
  write("p.jsonl", R"({"id": "a", "prompt": "x y z", "answer": "q"})"
                   "\n");
  const Result r = run("decide tiny --prompts p.jsonl --buckets 256");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.err, "bucket 256: expected prompts with answers from at least 8 documents"))
      << r.err;
}

TEST_F(Cli, ADocumentWithManyPromptsLeavesNoBlockWithoutDocuments) {
  // 20 prompts of one book and 7 of their own: two documents for every block all the same.
  const auto prompts = [&](int alone) {
    std::string out;
    for (int i = 0; i < 20 + alone; ++i) {
      out += "{\"id\": \"p" + std::to_string(i) + "\", " +
             (i < 20 ? std::string("\"cluster\": \"book\", ") : "") + "\"ids\": [" +
             ids(70 + i, 7 + 2 * i) + "], \"answer\": \"kelu\"}\n";
    }
    return out;
  };
  write("p.jsonl", prompts(7));
  const Result r = run("decide tiny --prompts p.jsonl --margin quick --buckets 256 --out d");
  EXPECT_EQ(r.code, 10) << r.err;
  write("p.jsonl", prompts(6));
  const Result short_of_one = run("decide tiny --prompts p.jsonl --buckets 256 --out e");
  EXPECT_EQ(short_of_one.code, 1);
  EXPECT_TRUE(has(short_of_one.err, "found 26 from 7, 1 of them in block")) << short_of_one.err;
}

TEST_F(Cli, EvalRefusesOtherScalesUnderTheSameName) {
  write("p.jsonl", "{\"id\": \"a\", \"ids\": [" + ids(80) + "]}\n");
  write("q.jsonl", "{\"id\": \"a\", \"ids\": [" + ids(120) + "]}\n");
  ASSERT_EQ(run("calibrate tiny --prompts p.jsonl --out c").code, 0);
  const std::string eval =
      "eval tiny --prompts p.jsonl --arms fp8_head/scales=c/scales.json --out e";
  ASSERT_EQ(run(eval).code, 0);
  ASSERT_EQ(run("calibrate tiny --prompts q.jsonl --out c2").code, 0);
  write("c/scales.json", read("c2/scales.json"));
  const Result other = run(eval);
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "configuration")) << other.err;
}

TEST_F(Cli, ArmsAreGivenOneByOneOrWithCommas) {
  write("p.jsonl", "{\"id\": \"a\", \"ids\": [" + ids(80) + "]}\n");
  const Result r =
      run("eval --arms fp8_scale1,fp8_token_head/bf16=0,3k tiny --prompts p.jsonl --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(Json::parse(r.out).at("arms").at(2).at("arm"), "fp8_token_head/bf16=0,3k");
}

TEST_F(Cli, CalibrateThenEvalWithTheFile) {
  write(
      "p.jsonl",
      R"({"id": "a", "prompt": "Passage kelu: mato rebi dafo\nrunning text, and so on for a while.\n"})"
      "\n");
  ASSERT_EQ(run("calibrate tiny --prompts p.jsonl --out c").code, 0);
  const Result r =
      run("eval tiny --prompts p.jsonl --arms fp8_head/scales=c/scales.json --out e --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json arms = Json::parse(r.out).at("arms");
  ASSERT_EQ(arms.size(), 2u);
  EXPECT_EQ(arms.at(0).at("kld"), 0);
  EXPECT_GT(arms.at(1).at("kld"), 0);
  EXPECT_LT(arms.at(1).at("kld"), 0.5);
  std::string scales = read("c/scales.json");
  scales.replace(scales.find("\"amax\""), 6, "\"amox\"");
  write("bad.json", scales);
  const Result bad = run("eval tiny --prompts p.jsonl --arms fp8_head/scales=bad.json --out e2");
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(has(bad.err, "bad.json: amax")) << bad.err;
}

TEST_F(Cli, EvalNamesTokensWithoutCalibration) {
  write("p.jsonl", "{\"id\": \"a\", \"ids\": [" + ids(80) + "]}\n");
  write("q.jsonl", "{\"id\": \"a\", \"ids\": [1000, " + ids(80) + ", 1001, 1001]}\n");
  ASSERT_EQ(run("calibrate tiny --prompts p.jsonl --out c").code, 0);
  const std::string arm = " --arms fp8_head/scales=c/scales.json ";
  const Result same = run("eval tiny --prompts p.jsonl --out e" + arm + "--json");
  EXPECT_TRUE(Json::parse(same.out).at("notices").empty()) << same.out;
  const Result other = run("eval tiny --prompts q.jsonl --out f" + arm + "--json");
  ASSERT_EQ(other.code, 0) << other.err;
  const std::string notice = Json::parse(other.out).at("notices").at(0);
  EXPECT_TRUE(has(notice, "c/scales.json: 2 token ids of the prompts were never calibrated on"))
      << notice;
  EXPECT_TRUE(has(notice, "1001 (at 2 positions")) << notice;
}

TEST_F(Cli, CalibrateRefusesToGuessPrompts) {
  const Result r = run("calibrate tiny");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.err, "--prompts")) << r.err;
}

TEST_F(Cli, PromptFilesErrorsNameFileAndLine) {
  write("p.jsonl", "{\"id\": \"a\", \"prompt\": \"x y z\"}\n{\"id\": \"b\", \"promt\": \"x\"}\n");
  const Result r = run("scan tiny --prompts p.jsonl");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.err, "p.jsonl") && has(r.err, "promt") && has(r.err, "prompt")) << r.err;
}

}  // namespace
