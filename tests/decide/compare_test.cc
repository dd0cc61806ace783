// Re-analysis of stored scores: the method's test vectors through files as other programs write
// them.

#include <gtest/gtest.h>
#include <unistd.h>

#include "decide/compare_means.h"
#include "decide/compare_scores.h"
#include "decide/score_pairs.h"
#include "kvscale/error.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

class CompareTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kvscale_compare_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  fs::path folder_;
};

/// What a refusal says; "accepted" when there is none.
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- tables of means ----

struct Published {
  const char* csv;
  ShiftType type;
  size_t negative, nonzero;
  uint64_t extreme, orderings;
  double auc_control, auc_candidate;  // 0: not published
};

// TV-9: the public vLLM study of April 2026, percent.
const Published kPublished[] = {
    {"bucket,control,candidate\n8k,95.4,95.0\n16k,77.8,74.8\n32k,69.2,67.2\n64k,57.1,55.5\n"
     "128k,59.5,58.2\n256k,46.0,42.7\n",
     ShiftType::kUniform, 6, 6, 140, 720, 57.9548, 55.9452},
    {"bucket,control,candidate\n8k,50.2,50.6\n16k,53.4,53.6\n32k,55.3,55.9\n64k,43.6,41.7\n"
     "128k,49.3,46.7\n256k,37.1,31.7\n",
     ShiftType::kLengthGrowing, 3, 6, 5, 720, 45.8419, 43.1484},
    {"bucket,control,candidate\n8k,50.6,50.9\n16k,53.0,52.3\n32k,56.6,55.3\n64k,43.9,41.3\n"
     "128k,48.5,45.4\n256k,37.7,31.4\n",
     ShiftType::kLengthGrowing, 5, 6, 1, 720, 0, 0},
    {"bucket,control,candidate\n8k,79.7,76.0\n16k,60.0,58.1\n32k,54.4,55.0\n64k,37.7,37.4\n"
     "128k,15.9,14.6\n",
     ShiftType::kNone, 4, 5, 106, 120, 38.8567, 38.1967},
};

TEST_F(CompareTest, PublishedTablesGiveTheirTypes) {
  for (const Published& one : kPublished) {
    const BucketMeans means = read_bucket_means(write("t.csv", one.csv), MeansUnit::kAuto);
    EXPECT_TRUE(means.was_percent);
    const MeansComparison result = compare_means(means, 0.05);
    EXPECT_EQ(result.shift, one.type) << one.csv;
    EXPECT_EQ(result.sign.negative, one.negative);
    EXPECT_EQ(result.sign.nonzero, one.nonzero);
    EXPECT_EQ(result.trend.extreme, one.extreme);
    EXPECT_EQ(result.trend.total, one.orderings);
    if (one.auc_control == 0) continue;
    EXPECT_NEAR(100 * result.auc_control.value(), one.auc_control, 0.5e-4);
    EXPECT_NEAR(100 * result.auc_candidate.value(), one.auc_candidate, 0.5e-4);
  }
}

TEST_F(CompareTest, ATableMayBeInAnyOrderUnitAndSpelling) {
  const BucketMeans plain = read_bucket_means(
      write("a.csv", "bucket,control,candidate\n8192,0.5,0.25\n16384,0.25,0\n"), MeansUnit::kAuto);
  const BucketMeans spelled = read_bucket_means(
      write("b.csv",
            "\xef\xbb\xbf\"candidate\", bucket ,control\r\n\r\n0 %,16k,25%\r\n 25.0 ,8k,50\r\n"),
      MeansUnit::kAuto);
  EXPECT_FALSE(plain.was_percent);
  EXPECT_TRUE(spelled.was_percent);
  EXPECT_EQ(spelled.lengths, plain.lengths);
  EXPECT_EQ(spelled.control, plain.control);
  EXPECT_EQ(spelled.candidate, plain.candidate);
  // Nine buckets: random orderings of a fixed seed, the same every time; names have an order only.
  std::string nine = "bucket,control,candidate\n";
  for (int i = 0; i < 9; ++i) {
    nine += std::string(1, static_cast<char>('a' + i)) + ",50," + std::to_string(50 - i) + "\n";
  }
  const BucketMeans named = read_bucket_means(write("c.csv", nine), MeansUnit::kAuto);
  const MeansComparison result = compare_means(named, 0.05);
  EXPECT_FALSE(result.is_exact);
  EXPECT_FALSE(result.has_lengths || result.auc_control.has_value());
  EXPECT_EQ(result.shift, ShiftType::kLengthGrowing);
  EXPECT_EQ(result.trend.extreme, compare_means(named, 0.05).trend.extreme);
}

TEST_F(CompareTest, BrokenTablesAreRefusedByLineAndColumn) {
  const auto read = [&](const std::string& text, MeansUnit unit = MeansUnit::kAuto) {
    return refusal([&] { read_bucket_means(write("t.csv", text), unit); });
  };
  const std::string head = "bucket,control,candidate\n";
  EXPECT_TRUE(has(read(""), "at least 2 buckets, found 0"));
  EXPECT_TRUE(has(read(head + "8k,1,2\n"), "at least 2 buckets, found 1"));
  EXPECT_TRUE(has(read("bucket,control\n"), "column \"candidate\" once, found it 0 times"));
  EXPECT_TRUE(has(read("bucket,control,candidate,n\n"), "found \"n\""));
  EXPECT_TRUE(
      has(read(head + "8k,1,2\n16k,1,nan\n"), "t.csv: line 3: candidate: expected a number"));
  EXPECT_TRUE(has(read(head + "8k,1,2\n16k,101,2\n"), "line 3: control"));
  EXPECT_TRUE(has(read(head + "8k,1,2\n8k,1,2\n"), "line 3: bucket"));
  EXPECT_TRUE(has(read(head + "8k,1,2\n8192,1,2\n"), "8192 tokens twice"));
  EXPECT_TRUE(has(read(head + "8k,1\n"), "expected 3 fields, found 2"));
  EXPECT_TRUE(has(read(head + "\"8k,1,2\n"), "closing quote"));
  EXPECT_TRUE(has(read(head + "8k,1,2\n16k,1,2\n", MeansUnit::kShare), "expected shares"));
  EXPECT_TRUE(has(refusal([] { read_bucket_means("/nowhere.csv", MeansUnit::kAuto); }), "nowhere"));
}

// ---- sample logs ----

/// A line as lm-evaluation-harness writes it.
std::string sample(int64_t id, const std::string& score, const std::string& more = "") {
  return "{\"doc_id\": " + std::to_string(id) +
         ", \"doc\": {\"question\": \"q\", \"length\": 4000}, \"target\": \"7\", \"resps\": "
         "[[\"7\"]], "
         "\"filter\": \"none\", \"metrics\": [\"exact_match\"], \"exact_match\": " +
         score + more + "}\n";
}

/// n examples of which the candidate loses b and wins c; the control answers the first `right`.
std::pair<std::string, std::string> arms_of(int64_t n, int64_t right, int64_t b, int64_t c) {
  std::pair<std::string, std::string> out;
  for (int64_t i = 0; i < n; ++i) {
    const bool control = i < right;
    const bool flips = control ? i < b : i - right < c;
    out.first += sample(i, control ? "1.0" : "0.0");
    out.second += sample(i, control != flips ? "1.0" : "0.0");
  }
  return out;
}

TEST_F(CompareTest, CountsGiveTheVectorsOfMcNemarTangoAndWilson) {
  const auto [control, candidate] = arms_of(500, 400, 25, 11);
  ScoreSet a = read_sample_logs(write("samples_a.jsonl", control), {});
  ScoreSet b = read_sample_logs(write("samples_b.jsonl", candidate), {});
  EXPECT_EQ(a.metric, "exact_match (none)");
  a.arm = "control";
  b.arm = "candidate";
  DecideOptions options = DecideOptions::standard();
  options.margin.bucket = 0.05;
  const ScoreComparison result = compare_scores(options, a, b, nullptr);
  ASSERT_EQ(result.table.buckets.size(), 1u);
  const BucketRow& row = result.table.buckets[0];
  EXPECT_EQ(row.losses, 25);
  EXPECT_EQ(row.gains, 11);
  EXPECT_EQ(row.deff, 1);
  EXPECT_NEAR(row.p_loss, 0.0100369260, 1e-9);        // TV-4
  EXPECT_NEAR(row.interval.lo, -0.0533894806, 1e-9);  // TV-5
  EXPECT_NEAR(row.interval.hi, -0.0047218985, 1e-9);
  EXPECT_NEAR(row.p_ni, 0.0427266310, 1e-9);
  EXPECT_EQ(row.verdict, BucketVerdict::kLossUnsized);
  // Holm over overall, trend, sign and the bucket.
  EXPECT_NEAR(row.p_loss_holm, 4 * 0.0100369260, 1e-8);
  const auto [few, same] = arms_of(50, 45, 0, 0);
  const ScoreSet fifty = read_sample_logs(write("samples_c.jsonl", few), {});
  const ScoreComparison wilson = compare_scores(options, fifty, fifty, nullptr);
  EXPECT_NEAR(wilson.control[0].interval.lo, 0.7863976856, 1e-9);  // TV-3
  EXPECT_NEAR(wilson.control[0].interval.hi, 0.9565242351, 1e-9);
  EXPECT_TRUE(wilson.control[0].is_binary);
}

TEST_F(CompareTest, FractionsInClustersGiveTheVectorOfClusteredErrors) {
  // TV-1, which is 20 examples in 8 clusters.
  const double ctrl[] = {1, 1, 0, 1, 1, 1, .5, 1, 1, 0, 1, 1, .75, 1, 1, 1, .25, 1, 1, 1};
  const double cand[] = {1, 1, 0, 0, 1, 1, .5, 1, .75, 0, 1, 1, .25, 1, 1, .5, .25, 1, 1, 1};
  const int clus[] = {0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 7};
  std::string control, candidate;
  for (int i = 0; i < 20; ++i) {
    const std::string more = ", \"meta\": {\"book\": \"b" + std::to_string(clus[i]) + "\"}";
    control += sample(i, std::to_string(ctrl[i]), more);
    candidate += sample(i, std::to_string(cand[i]), more);
  }
  SampleOptions options;
  options.cluster_field = "meta.book";
  const ScoreSet a = read_sample_logs(write("a.jsonl", control), options);
  const ScoreSet b = read_sample_logs(write("b.jsonl", candidate), options);
  const ScoreComparison result = compare_scores(DecideOptions::quick(), a, b, nullptr);
  const BucketRow& row = result.table.buckets[0];
  EXPECT_TRUE(result.has_clusters);
  EXPECT_EQ(row.documents, 8);
  EXPECT_EQ(row.max_questions, 3);
  EXPECT_NEAR(row.diff, -0.1125, 1e-12);
  EXPECT_NEAR(row.se_iid, 0.058700286917616744, 1e-12);
  EXPECT_NEAR(row.se_cr1, 0.054494429597371295, 1e-12);
  EXPECT_NEAR(row.interval.lo, -0.2413588498, 1e-9);
  EXPECT_NEAR(row.interval.hi, 0.0163588498, 1e-9);
  EXPECT_NEAR(result.recovery->ratio, 0.8636363636, 1e-9);
  EXPECT_FALSE(result.recovery->is_bootstrap) << "8 clusters are too few";
}

TEST_F(CompareTest, BucketsComeFromAFieldAndTheTrendFromItsLengths) {
  std::string control, candidate;
  int64_t id = 0;
  for (const int64_t length : {1000, 3000, 9000, 30000}) {
    for (int i = 0; i < 200; ++i) {
      const std::string more = ", \"length\": " + std::to_string(length + i);
      // The longer, the more is lost: 0, 4, 12 and 28 of 200.
      const int64_t lost = length == 1000 ? 0 : length == 3000 ? 4 : length == 9000 ? 12 : 28;
      control += sample(id, "true", more);
      candidate += sample(id++, i < lost ? "false" : "true", more);
    }
  }
  SampleOptions options;
  options.bucket_field = "length";
  options.edges = {2000, 8000, 16000};
  const ScoreSet a = read_sample_logs(write("a.jsonl", control), options);
  const ScoreSet b = read_sample_logs(write("b.jsonl", candidate), options);
  const ScoreComparison result = compare_scores(DecideOptions::quick(), a, b, &a);
  ASSERT_EQ(result.table.buckets.size(), 4u);
  EXPECT_EQ(result.table.buckets[0].bucket, "2000");
  EXPECT_EQ(result.table.buckets[3].bucket, "over 16000");
  EXPECT_EQ(result.table.buckets[3].losses, 28);
  EXPECT_EQ(result.table.shift, ShiftType::kLengthGrowing);
  EXPECT_TRUE(result.recovery->is_bootstrap);
  EXPECT_NEAR(result.recovery->ratio, 1 - 44.0 / 800, 1e-12);
  EXPECT_GT(result.recovery->interval.value().hi, result.recovery->ratio);
  EXPECT_GT(result.auc_control.value(), result.auc_candidate.value());
  ASSERT_TRUE(result.repeat.has_value());
  EXPECT_EQ(result.repeat->overall.losses + result.repeat->overall.gains, 0);
}

TEST_F(CompareTest, AFolderOfTasksIsReadTaskByTask) {
  for (const char* arm : {"x", "y"}) {
    for (const char* task : {"gsm8k", "my_task"}) {
      write(std::string(arm) + "/samples_" + task + "_2026-11-30T12-00-00.123.jsonl",
            sample(0, "1") + sample(1, "0"));
    }
    write(std::string(arm) + "/results.json", "{}");
  }
  const ScoreSet a = read_sample_logs(folder_ / "x", {});
  ASSERT_EQ(a.scores.size(), 4u);
  EXPECT_EQ(a.scores[0].id, "gsm8k/0");
  EXPECT_EQ(a.scores[3].id, "my_task/1");
  EXPECT_EQ(pair_scores(a, read_sample_logs(folder_ / "y", {}))[0].n(), 4);
}

TEST_F(CompareTest, WhatDoesNotPairIsRefusedByIdFileAndLine) {
  const auto set = [&](const std::string& text, const SampleOptions& options = {}) {
    return read_sample_logs(write("s.jsonl", text), options);
  };
  const auto read = [&](const std::string& text, const SampleOptions& options = {}) {
    return refusal([&] { set(text, options); });
  };
  const std::string three = sample(0, "1") + sample(1, "0") + sample(2, "1");
  const auto pairs = [&](const std::string& a, const std::string& b) {
    return refusal([&] { pair_scores(set(a), set(b)); });
  };
  EXPECT_EQ(pairs(three, three), "accepted");
  EXPECT_TRUE(has(pairs(three, sample(1, "0")), "found 2 of them missing: 0, 2"));
  EXPECT_TRUE(has(pairs(sample(1, "0"), three), "found 2 of them missing: 0, 2"));
  EXPECT_TRUE(has(pairs(sample(0, "1"), sample(0, "1")), "at least 2 pairs, found 1"));
  EXPECT_TRUE(has(pairs(sample(0, "1", ", \"prompt_hash\": \"aa\"") + sample(1, "1"),
                        sample(0, "1", ", \"prompt_hash\": \"bb\"") + sample(1, "1")),
                  "expected the prompt of"));
  for (const char* bad : {"NaN", "Infinity", "-Infinity", "null", "\"1\"", "[1]", "1.5", "-0.1"}) {
    const std::string message = read(sample(0, "1") + sample(1, bad));
    EXPECT_TRUE(has(message, "s.jsonl: line 2: \"exact_match\": expected a score from 0 to 1"))
        << bad << ": " << message;
  }
  // A NaN that is no score does no harm, nor does the word in a text.
  EXPECT_EQ(read(sample(0, "1", ", \"other\": [NaN, -Infinity], \"t\": \"NaN \\\" Infinity\"")),
            "accepted");
  EXPECT_TRUE(has(read("{\"doc_id\": 0, \"filter\": \"none\", \"metrics\": [\"acc\"]}\n"),
                  "line 1: \"acc\": expected a score from 0 to 1, found nothing"));
  EXPECT_TRUE(has(read(sample(0, "1") + sample(0, "1")), "line 2: example \"0\": expected once"));
  EXPECT_TRUE(has(read(sample(0, "1") + "{"), "line 2: not JSON"));
  EXPECT_TRUE(has(read(""), "metric: expected one, found none"));
  EXPECT_TRUE(has(read("{\"doc_id\": 0, \"metrics\": [\"acc\", \"acc_norm\"], \"acc\": 1, "
                       "\"acc_norm\": 0}\n"),
                  "choose with --metric), found acc, acc_norm"));
  std::string filters = sample(0, "1") + sample(0, "0");
  filters.replace(filters.rfind("\"none\""), 6, "\"flex\"");
  EXPECT_TRUE(has(read(filters), "choose with --filter), found flex, none"));
  SampleOptions flexible;
  flexible.filter = "flex";
  EXPECT_EQ(set(filters, flexible).scores.size(), 1u);
  SampleOptions wrong;
  wrong.bucket_field = "doc.size";
  EXPECT_TRUE(has(read(three, wrong), "line 1: \"doc.size\": expected a value, found nothing"));
  wrong = {};
  wrong.metric = "f1";
  EXPECT_TRUE(has(read(three, wrong), "expected \"f1\", found exact_match"));
}

/// Seeded edits of a good text, each handed to `load`, which must take it or refuse it.
template <class Load>
void expect_survives(const std::string& good, const std::string& bytes, Load load) {
  std::mt19937 random(11);
  for (int i = 0; i < 1500; ++i) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 4 == 0) {
        text.erase(at, 1 + random() % 30);
      } else {
        text[at] = bytes[random() % bytes.size()];
      }
      if (text.empty()) break;
    }
    EXPECT_FALSE(refusal([&] { load(text); }).empty());
  }
}

TEST_F(CompareTest, MutatedFilesAreTakenOrRefused) {
  expect_survives(kPublished[0].csv, ",\"%\n\r .-e9kMN\xff", [&](const std::string& text) {
    compare_means(read_bucket_means(write("m.csv", text), MeansUnit::kAuto), 0.05);
  });
  SampleOptions options;
  options.bucket_field = "doc.length";
  options.cluster_field = "doc.question";
  options.edges = {100, 5000};
  std::string good;
  for (int i = 0; i < 3; ++i) good += sample(i, i == 1 ? "NaN" : "0.5", ", \"prompt_hash\": \"a\"");
  good.replace(good.find("NaN"), 3, "1.0");
  const ScoreSet control = read_sample_logs(write("good.jsonl", good), options);
  expect_survives(good, "{}[]\",:\\0-9eNaInfy\n\xff", [&](const std::string& text) {
    pair_scores(control, read_sample_logs(write("m.jsonl", text), options));
  });
}

// ---- kvscale's records ----

ExampleRecord example(const std::string& block, const std::string& arm, int id, double score) {
  ExampleRecord out;
  out.example_id = "q" + std::to_string(id);
  out.record_id = block + "/" + arm + "/" + out.example_id;
  out.block = block;
  out.arm = arm;
  out.document = "d" + std::to_string(id / 2);
  out.bucket = "512";
  out.half = 1 + id / 2 % 2;
  out.score = score;
  out.prompt_tokens = 500;
  return out;
}

TEST_F(CompareTest, RecordsPairByExampleWithDocumentsAsClusters) {
  Records records;
  for (int i = 0; i < 8; ++i) {
    records.examples.push_back(example("E1", "bf16", i, 1));
    records.examples.push_back(example("E1", "fp8_tensor", i, i == 3 ? 0 : 1));
    records.examples.push_back(example("E2", "fp8_tensor", i, 1));
  }
  const ScoreSet b = scores_of_records(records, "r", "fp8_tensor", "", "bf16");
  EXPECT_EQ(b.block, "E1") << "the only block that both have";
  const auto pairs = pair_scores(scores_of_records(records, "r", "bf16", ""), b);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].documents, 4);
  EXPECT_EQ(pairs[0].max_questions, 2);
  EXPECT_EQ(pairs[0].half.size(), 8u);
  EXPECT_EQ(pairs[0].mean_prompt_tokens, 500);
  EXPECT_TRUE(has(refusal([&] { scores_of_records(records, "r", "fp8_tensor", ""); }),
                  "choose with --block), found E1, E2"));
  EXPECT_TRUE(has(refusal([&] { scores_of_records(records, "r", "fp8_head", ""); }),
                  "found those of bf16, fp8_tensor"));
  records.examples[0].score = NAN;
  EXPECT_TRUE(has(refusal([&] { scores_of_records(records, "r", "bf16", "E1"); }),
                  "record E1/bf16/q0: \"score\""));
}

}  // namespace
}  // namespace kv
