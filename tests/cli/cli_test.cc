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

  /// The run's files come again from its records; a changed one is told.
  void expect_recomputed(const std::string& run_folder, int exit_code) const {
    const Result again = run("recompute " + run_folder + " --report --junit j.xml --json");
    EXPECT_EQ(again.code, exit_code) << again.err;
    EXPECT_EQ(again.out, read(run_folder + "/decision.json"));
    EXPECT_NE(again.err.find("decision.json: identical"), std::string::npos) << again.err;
    EXPECT_NE(again.err.find("report.html: identical"), std::string::npos) << again.err;
    EXPECT_NE(read("j.xml").find("<testcase classname=\"kvscale.gates\" name=\"verdict\""),
              std::string::npos);
    const Result page = run("report " + run_folder + " --out page.html");
    EXPECT_EQ(page.code, 0) << page.err;
    EXPECT_EQ(read("page.html"), read(run_folder + "/report.html"));
    fs::copy(folder_ / run_folder, folder_ / "r #1");
    EXPECT_EQ(run("report " + run_folder + " 'r #1' --out runs.html").code, 0);
    for (const std::string& link : {run_folder, std::string("r%20%231")}) {
      EXPECT_NE(read("runs.html").find("href=\"" + link + "/report.html\""), std::string::npos);
    }

    Json changed = Json::parse(read(run_folder + "/decision.json"));
    changed["outcome"] = "KEEP_IT";
    write(run_folder + "/decision.json", changed.dump());
    const Result shown = run("report " + run_folder + " --out page.html");
    EXPECT_NE(shown.out.find("decision.json: differs"), std::string::npos) << shown.out;
    EXPECT_EQ(page.out.find("differs"), std::string::npos) << page.out;
    const Result differs = run("recompute " + run_folder + " --out again");
    EXPECT_EQ(differs.code, 1);
    EXPECT_NE(differs.err.find("found \"KEEP_IT\""), std::string::npos) << differs.err;
    EXPECT_EQ(read(run_folder + "/decision.json"), changed.dump()) << "left as it was found";
    EXPECT_EQ(read("again/decision.json"), again.out);
    fs::remove(folder_ / run_folder / "decision.json");
    EXPECT_EQ(run("recompute " + run_folder).code, exit_code);
    EXPECT_EQ(read(run_folder + "/decision.json"), again.out);
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
  for (const char* command :
       {"plan", "scan", "calibrate", "eval", "decide", "bench", "compare", "recompute", "report"})
    EXPECT_TRUE(has(r.out, command));
}

TEST_F(Cli, AnUnknownCommandNamesTheOneThatMayBeMeant) {
  const Result near = run("decid tiny");
  EXPECT_EQ(near.code, 1);
  EXPECT_TRUE(has(near.err, "found \"decid\"; did you mean decide?")) << near.err;
  const Result far = run("something");
  EXPECT_EQ(far.code, 1);
  EXPECT_TRUE(has(far.err, "expected one of plan, scan,") && has(far.err, "found \"something\""))
      << far.err;
  EXPECT_FALSE(has(far.err, "did you mean")) << far.err;
}

TEST_F(Cli, EveryOptionOfDecideSaysItsDefault) {
  const std::string help = run("decide --help").out;
  for (const char* text :
       {"(default: 250 under standard, 50 under quick)",
        "(default: 4 under standard, 4 under quick)", "(default: standard)", "--budget", "--strict",
        "--exhaustive", "--traffic"}) {
    EXPECT_TRUE(has(help, text)) << text << "\n" << help;
  }
  EXPECT_TRUE(has(run("decide tiny --budget 5 --documents 40").err, "--budget"));
  EXPECT_TRUE(has(run("decide tiny --strict --buckets 128 --traffic 256:1").err,
                  "expected shares of the buckets 128, found 256"));
}

TEST_F(Cli, HelpOfEveryCommandAnswers) {
  for (const std::string command :
       {"plan", "scan", "calibrate", "eval", "decide", "bench", "compare", "recompute", "report"}) {
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
        "decide tiny --tasks all,copy_span", "bench fp8-error --arm fp8_head",
        "bench fp8-error -p 64", "bench",
        "bench attention --device cuda --cells 8", "bench attention --device cuda --kv-heads 0",
        "bench append --device cuda --tokens 0", "bench attention --device cuda --formats fp8"}) {
    const Result r = run(command);
    EXPECT_EQ(r.code, 1) << command << r.err;
    EXPECT_TRUE(has(r.err, "expected") || has(r.err, "not in")) << command << ": " << r.err;
    EXPECT_FALSE(has(r.err, "load weights")) << command;
  }
}

TEST_F(Cli, BenchesOfSingleOpsSayWhatTheyNeed) {
  EXPECT_TRUE(has(run("bench attention --help").out, "--phase"));
  EXPECT_TRUE(has(run("bench append").err, "--device"));
  EXPECT_TRUE(has(run("bench append --device cpu").err, "supported: cuda, needed cpu"));
  for (const char* unheard : {"bench --json append --device cuda", "bench -n 4 append --device cuda",
                              "bench append --device cuda --q-heads 8"}) {
    EXPECT_EQ(run(unheard).code, 1) << unheard;
  }
#ifndef KVSCALE_HAS_CUDA
  const Result r = run("bench attention --device cuda --json");
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "cmake --preset cuda")) << r.err;
#endif
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
  expect_recomputed("d", 10);
  write("p.jsonl", prompts("dafo"));
  const Result edited = run(command);
  EXPECT_EQ(edited.code, 1);
  EXPECT_TRUE(has(edited.err, "configuration")) << edited.err;
  for (const std::string option : {"--documents 40", "--budget 5"}) {
    const Result generators = run("decide tiny --prompts p.jsonl " + option);
    EXPECT_TRUE(generators.code == 1 && has(generators.err, option.substr(0, option.find(' '))))
        << generators.err;
  }
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

TEST_F(Cli, EvalGoesOnFromThePromptsAndRefusesWhatItWouldPassOver) {
  write("p.jsonl", R"({"id": "a", "prompt": "Passage kelu: mato rebi dafo\nrunning text"})"
                   "\n");
  const std::string base = "eval tiny --prompts p.jsonl --arms fp8_scale1 ";
  const Result greedy = run(base + "--generate 4 --out g --json");
  ASSERT_EQ(greedy.code, 0) << greedy.err;
  const Json row = Json::parse(greedy.out).at("divergence").at("rows").at(0);
  EXPECT_EQ(row.at("n"), 1);
  EXPECT_EQ(row.at("is_sampled"), false);
  const Result sampled =
      run(base + "--generate 4 --temperature 0.8 --top-p 0.9 --samples 3 --out s");
  ASSERT_EQ(sampled.code, 0) << sampled.err;
  EXPECT_TRUE(has(sampled.out, "question, drawn with")) << sampled.out;
  EXPECT_EQ(run(base + "--generate 4 --temperature 0.8 --out s").code, 1) << "another run's";
  const std::pair<const char*, const char*> wrong[] = {
      {"--temperature 0.8", "expected --generate"},
      {"--generate 4 --samples 3", "expected --temperature"},
      {"--generate 4 --top-p 0.5", "expected --temperature"},
      {"--generate 4 --temperature 1 --top-p 0", "top_p"},
      {"--generate 4 --temperature 500", "temperature"},
      {"--generate 513", "at most 512"}};
  for (const auto& [options, message] : wrong) {
    const Result refused = run(base + options);
    EXPECT_EQ(refused.code, 1) << options;
    EXPECT_TRUE(has(refused.err, message)) << refused.err;
  }
  EXPECT_TRUE(has(run("decide tiny --samples 2").err, "expected --temperature"));
}

TEST_F(Cli, CompareReadsTablesAndSampleLogs) {
  write("t.csv",
        "bucket,control,candidate\n8k,95.4,95.0\n16k,77.8,74.8\n32k,69.2,67.2\n64k,57.1,55.5\n"
        "128k,59.5,58.2\n256k,46.0,42.7\n");
  const Result text = run("compare --table t.csv");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"bucket-level only, low power", "Shift: UNIFORM", "140 of 720",
                           "57.95 and 55.95", "Nothing is accepted"}) {
    EXPECT_TRUE(has(text.out, part)) << part << "\n" << text.out;
  }
  const Json table = Json::parse(run("compare --table t.csv --json").out);
  EXPECT_EQ(table.at("shift"), "UNIFORM");
  EXPECT_EQ(table.at("accepts"), false);

  std::string control, candidate;
  for (int i = 0; i < 60; ++i) {
    const std::string line = "{\"doc_id\": " + std::to_string(i) + ", \"exact_match\": ";
    control += line + "1.0}\n";
    candidate += line + (i < 9 ? "0.0}\n" : "1.0}\n");
  }
  write("samples_a.jsonl", control);
  write("samples_b.jsonl", candidate);
  const Result scores = run("compare samples_a.jsonl samples_b.jsonl --margin quick");
  EXPECT_EQ(scores.code, 0) << scores.err;
  EXPECT_TRUE(has(scores.out, "9/0")) << scores.out;
  EXPECT_TRUE(has(scores.out, "Nothing is accepted here")) << scores.out;
  const Json json = Json::parse(run("compare samples_a.jsonl samples_b.jsonl --json").out);
  EXPECT_EQ(json.at("table").at("overall").at("b"), 9);
  EXPECT_EQ(json.at("means").at(0).at("control").at("method"), "wilson");

  write("samples_b.jsonl", candidate.substr(0, candidate.rfind("{")));
  const Result unpaired = run("compare samples_a.jsonl samples_b.jsonl");
  EXPECT_EQ(unpaired.code, 1);
  EXPECT_TRUE(has(unpaired.err, "1 of them missing: 59")) << unpaired.err;
  for (const char* wrong : {"compare", "compare samples_a.jsonl", "compare a b --table t.csv",
                            "compare --unit percent", "compare nowhere samples_a.jsonl"}) {
    EXPECT_EQ(run(wrong).code, 1) << wrong;
  }
  fs::create_directories(folder_ / "empty");
  EXPECT_TRUE(has(run("report empty").err, "expected a decide run")) << run("report empty").err;
  EXPECT_TRUE(has(run("recompute empty").err, "run.json")) << run("recompute empty").err;
}

/// An example record as a run writes it.
std::string example_line(const std::string& arm, int id, double score) {
  const std::string example = "q" + std::to_string(id);
  return Json({{"kind", "example"},
               {"schema", 5},
               {"record_id", "E1/" + arm + "/" + example},
               {"block", "E1"},
               {"arm", arm},
               {"example_id", example},
               {"document", "d" + std::to_string(id / 2)},
               {"task", "t"},
               {"bucket", "512"},
               {"look", 1},
               {"half", 1 + id / 2 % 2},
               {"prompt_tokens", 500},
               {"score", score},
               {"chance", 0.0},
               {"finite", true},
               {"valid", true},
               {"answer_logprob", -0.1},
               {"kernel", "k"}})
             .dump() +
         "\n";
}

TEST_F(Cli, CompareRefusesRunsOfOtherQuestions) {
  std::string control, candidate;
  for (int i = 0; i < 40; ++i) {
    control += example_line("bf16", i, 1);
    candidate += example_line("fp8_tensor", i, i == 0 ? 0 : 1);
  }
  for (const char* name : {"a", "b"}) fs::create_directories(folder_ / name);
  write("a/records.jsonl", control);
  write("b/records.jsonl", candidate);
  const std::string configuration = "kvscale 1\ncommand decide\nmodel m\nprompts p\nbackend x\n";
  write("a/configuration.txt", configuration + "margin 1\nseed 1\n");
  write("b/configuration.txt", configuration + "margin 2\nseed 1\n");
  const Result same = run("compare a b --json");
  EXPECT_EQ(same.code, 0) << same.err;
  const Json json = Json::parse(same.out);
  EXPECT_EQ(json.at("candidate").at("arm"), "fp8_tensor");
  EXPECT_EQ(json.at("table").at("buckets").at(0).at("b"), 1);
  EXPECT_EQ(json.at("table").at("buckets").at(0).at("documents"), 20);
  EXPECT_TRUE(has(run("compare a b").out, "validity")) << run("compare a b").out;
  write("b/configuration.txt", configuration + "margin 2\nseed 2\n");
  const Result other = run("compare a b");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "expected runs of the same questions")) << other.err;
  write("s.jsonl", "{\"doc_id\": 0, \"acc\": 1}\n");
  EXPECT_TRUE(has(run("compare a s.jsonl").err, "two files of one kind"));
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
  scales.replace(scales.rfind("\"amax\":"), 7, "\"amox\":");
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

TEST_F(Cli, CalibrateKnowsEstimatorsAndRefusesOthers) {
  write("p.jsonl", "{\"id\": \"a\", \"ids\": [" + ids(80) + "]}\n");
  for (const std::string one : {"percentile:99", "mse", "pow2"}) {
    const Result r = run("calibrate tiny --prompts p.jsonl --json --estimator " + one);
    ASSERT_EQ(r.code, 0) << r.err;
    const std::string file = Json::parse(r.out).at("scale_file");
    const Json scales = Json::parse(read(file));
    EXPECT_EQ(scales.at("estimator").at("name"), one.substr(0, one.find(':')));
    EXPECT_NE(scales.at("rope"), "");
    EXPECT_EQ(scales.at("chat_template_sha256").get<std::string>().size(), 64u);
    EXPECT_EQ(scales.at("head_dim"), 64);
    EXPECT_EQ(scales.at("dataset").at("lengths"), Json::parse(R"([{"up_to":128,"examples":1}])"));
    EXPECT_EQ(run("eval tiny --prompts p.jsonl --arms fp8_tensor/scales=" + file).code, 0);
  }
  const Result r = run("calibrate tiny --prompts p.jsonl --estimator max");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.err, "estimator: expected amax, percentile:P")) << r.err;
}

TEST_F(Cli, WarmupSaysWhatTheOtherRequestsLose) {
  write("p.jsonl", "{\"id\": \"a\", \"ids\": [1, 1, 1]}\n{\"id\": \"b\", \"ids\": [" + ids(80) +
                       "]}\n{\"id\": \"c\", \"ids\": [" + ids(40) + "]}\n");
  const Result r = run("calibrate tiny --prompts p.jsonl --warmup 1 --out w --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json out = Json::parse(r.out);
  EXPECT_EQ(out.at("examples"), 1);
  const Json& warmup = out.at("warmup");
  EXPECT_EQ(warmup.at("kld_tokens"), 79 + 39);
  ASSERT_EQ(warmup.at("layers").size(), 12u);
  int64_t clipped = 0;
  double largest = 0;
  for (const Json& layer : warmup.at("layers")) {
    EXPECT_GE(layer.at("amax_ratio"), 1);
    largest = std::max(largest, layer.at("amax_ratio").get<double>());
    clipped += layer.at("clipped").get<int64_t>();
  }
  EXPECT_GT(largest, 1.2);
  EXPECT_GT(clipped, 0);
  EXPECT_EQ(Json::parse(read("w/scales-all.json")).at("dataset").at("examples"), 3);
  EXPECT_EQ(Json::parse(read("w/scales.json")).at("dataset").at("examples"), 1);
  const Result again = run("calibrate tiny --prompts p.jsonl --warmup 1 --out w");
  EXPECT_TRUE(has(again.out, "scales of the first 1 of 3 requests: all of them raise amax"))
      << again.out;
  EXPECT_EQ(run("calibrate tiny --prompts p.jsonl --warmup 3").code, 1);
}

TEST_F(Cli, EvalSaysThatScalesDoNotRepresentThePrompts) {
  std::string few, many;
  for (int i = 0; i < 10; ++i) {
    const std::string begin = "{\"id\": \"" + std::to_string(i) + "\", \"ids\": [";
    few += begin + std::to_string(i + 1) + ", 2, 3]}\n";
    many += begin + std::to_string(i + 1) + ", " + ids(60) + "]}\n";
  }
  write("few.jsonl", few);
  write("many.jsonl", many);
  ASSERT_EQ(run("calibrate tiny --prompts few.jsonl --out c").code, 0);
  const std::string arm = " --arms fp8_tensor/scales=c/scales.json --json";
  const Result same = run("eval tiny --prompts few.jsonl" + arm);
  EXPECT_TRUE(Json::parse(same.out).at("notices").empty()) << same.out;
  const Result other = run("eval tiny --prompts many.jsonl" + arm);
  const std::string notice = Json::parse(other.out).at("notices").at(0);
  EXPECT_TRUE(has(notice,
                  "c/scales.json: CAL_NOT_REPRESENTATIVE: more contexts exceed the amax of "
                  "10 calibration examples"))
      << notice;
  EXPECT_TRUE(has(notice, "(10 of 10, ") && has(notice, "in bucket 64; p ")) << notice;
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
