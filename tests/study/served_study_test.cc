// The main job with servers that answer: fakes that speak vLLM's dialect and compute with kvscale's
// own engine, so that the right answer is the local one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "checkpoint/load_tokenizer.h"
#include "kvscale/error.h"
#include "study/decide_study.h"
#include "tests/study/model_server.h"
#include "tests/study/plants.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using testing::ModelServer;

struct ServedStudy {
  explicit ServedStudy(std::shared_ptr<const Model> served_model)
      : model(std::move(served_model)), tokenizer(load_tokenizer(model->checkpoint())) {
    options.decide = DecideOptions::quick();
    // Too few for a verdict, enough for every score.
    options.decide.documents = 8;
    options.decide.aa_documents = 3;
    options.decide.questions_per_document = 3;
    options.buckets = {256};
    options.tasks = {"kv_recall", "copy_span"};
    options.form = Form::kCompact;
  }

  Verdict run(ServedArms* servers) {
    Records ignored;
    return run(servers, ignored);
  }

  /// `servers` null: kvscale's own engine.
  Verdict run(ServedArms* servers, Records& records) {
    const fs::path folder = scratch.path() / (servers != nullptr ? "served" : "own");
    fs::create_directories(folder);
    NoProgress silent;
    RecordLog log(folder / "records.jsonl");
    CalibrationSource source;
    source.model_sha256 = model->checkpoint().content_sha256();
    DecideStudy study(model, tokenizer, {}, source, options, folder, log, silent);
    if (servers != nullptr) study.serve(*servers, 3);
    try {
      const Verdict verdict = study.run();
      notices = study.notices();
      records = log.records();
      return verdict;
    } catch (...) {
      records = log.records();
      throw;
    }
  }

  std::shared_ptr<const Model> model;
  Tokenizer tokenizer;
  StudyOptions options;
  fixtures::ScratchFolder scratch;
  std::vector<std::string> notices;
};

HttpOptions one_attempt() {
  HttpOptions http;
  http.attempts = 1;
  return http;
}

UrlArms servers_of(const std::vector<std::pair<std::string, const ModelServer*>>& named) {
  std::vector<std::pair<ArmSpec, std::string>> urls;
  for (const auto& [arm, server] : named) urls.emplace_back(ArmSpec::parse(arm), server->url());
  return {urls, one_attempt(), Dialect::kVllm, ""};
}

std::shared_ptr<const Model> built_in() {
  static const auto model =
      Model::load(Checkpoint::open(std::filesystem::path(KV_SOURCE_DIR) / "models/tiny"));
  return model;
}

const ArmSpec kScaleOne = ArmSpec::parse("fp8_scale1");

TEST(ServedStudyTest, DecidesAsTheOwnEngineDoes) {
  ServedStudy study(built_in());
  ModelServer control(built_in(), ArmSpec{}), candidate(built_in(), kScaleOne);
  UrlArms servers = servers_of({{"bf16", &control}, {"fp8_scale1", &candidate}});
  Records own_records, records;
  const Verdict own = study.run(nullptr, own_records);
  const Verdict served = study.run(&servers, records);
  EXPECT_EQ(name(served.outcome), name(own.outcome)) << served.sentence;
  EXPECT_EQ(served.layout, own.layout);
  std::map<std::string, double> scores;
  for (const ExampleRecord& one : own_records.examples) scores[one.record_id] = one.score;
  ASSERT_EQ(records.examples.size(), own_records.examples.size());
  for (const ExampleRecord& one : records.examples) {
    ASSERT_TRUE(scores.contains(one.record_id)) << one.record_id;
    EXPECT_EQ(one.score, scores[one.record_id]) << one.record_id;
    EXPECT_EQ(one.kernel, "vllm, decode lane");
  }
  ASSERT_EQ(records.served.size(), 2u);
  EXPECT_GT(records.served[0].logprobs.size(), 400u);
  EXPECT_GT(records.served[0].nll, 0);
  EXPECT_EQ(served.reasons.front().rule, "NOT_SERVED");
}

TEST(ServedStudyTest, ACandidateThatQuantizesNothingIsNamed) {
  ServedStudy study(built_in());
  ModelServer control(built_in(), ArmSpec{}), candidate(built_in(), ArmSpec{});
  UrlArms servers = servers_of({{"bf16", &control}, {"fp8_scale1", &candidate}});
  const Verdict verdict = study.run(&servers);
  EXPECT_EQ(name(verdict.outcome), "REJECT_FP8");
  EXPECT_EQ(verdict.sub_reason, "BACKEND_FALLBACK");
  EXPECT_TRUE(std::ranges::any_of(verdict.reasons, [](const Reason& reason) {
    return reason.text.find("nothing is quantized (prefill lane: ") != std::string::npos;
  }));
  EXPECT_EQ(candidate.generations(), 0);  // no question was wasted on it
}

TEST(ServedStudyTest, ScalesThatDidNotArriveEndTheRun) {
  ServedStudy study(built_in());
  ModelServer control(built_in(), ArmSpec{}), one(built_in(), kScaleOne),
      other(built_in(), kScaleOne);
  UrlArms servers = servers_of({{"bf16", &control}, {"fp8_scale1", &one}, {"fp8_tensor", &other}});
  const Verdict verdict = study.run(&servers);
  EXPECT_EQ(name(verdict.outcome), "INCONCLUSIVE");
  EXPECT_EQ(verdict.sub_reason, "SCALES_NOT_APPLIED") << verdict.sentence;
}

TEST(ServedStudyTest, AnotherModelIsNoControl) {
  ServedStudy study(built_in());
  Plant plant;
  plant.scale_rows("model.layers.0.self_attn.k_proj.weight", 0, 16, 128, 8);
  const auto other = plant.load();
  ModelServer control(other, ArmSpec{}), candidate(other, kScaleOne);
  UrlArms servers = servers_of({{"bf16", &control}, {"fp8_scale1", &candidate}});
  const Verdict verdict = study.run(&servers);
  EXPECT_EQ(name(verdict.outcome), "INCONCLUSIVE");
  EXPECT_EQ(verdict.sub_reason, "PROVENANCE") << verdict.sentence;
}

TEST(ServedStudyTest, GoesOnWhereAServerBroke) {
  ServedStudy study(built_in());
  Records before, after;
  const int break_at = 16;
  {
    ModelServer control(built_in(), ArmSpec{}), candidate(built_in(), kScaleOne);
    UrlArms servers = servers_of({{"bf16", &control}, {"fp8_scale1", &candidate}});
    control.break_after(break_at);
    EXPECT_THROW(study.run(&servers, before), IoError);
  }
  // Three connections: at most three documents of three questions were under way, and the probe's
  // continuation is no record.
  EXPECT_GE(before.examples.size(), static_cast<size_t>(break_at - 1 - 3 * 3));
  ModelServer control(built_in(), ArmSpec{}), candidate(built_in(), kScaleOne);
  UrlArms servers = servers_of({{"bf16", &control}, {"fp8_scale1", &candidate}});
  const Verdict verdict = study.run(&servers, after);
  EXPECT_FALSE(verdict.tables.empty()) << verdict.sentence;
  const size_t asked = static_cast<size_t>(control.generations() + candidate.generations() - 1);
  const auto taken_over =
      static_cast<size_t>(std::ranges::count_if(after.examples, [&](const ExampleRecord& one) {
        return one.block == "E1" && one.arm == "bf16" &&
               std::ranges::any_of(after.examples, [&](const ExampleRecord& aa) {
                 return aa.record_id == "AA/bf16/" + one.example_id;
               });
      }));
  EXPECT_EQ(asked, after.examples.size() - before.examples.size() - taken_over);
}

TEST(ServedStudyTest, ServersHaveOneArmEach) {
  ModelServer control(built_in(), ArmSpec{});
  EXPECT_THROW(servers_of({{"bf16", &control}}), ValueError);
  EXPECT_THROW(servers_of({{"fp8_scale1", &control}}), ValueError);
  EXPECT_THROW(servers_of({{"bf16", &control}, {"fp8_scale1", &control}, {"fp8_scale1", &control}}),
               ValueError);
  const UrlArms servers = servers_of({{"bf16", &control}, {"fp8_scale1", &control}});
  EXPECT_EQ(servers.refusal(ArmSpec::parse("fp8_scale1/round=truncate")), "");
  EXPECT_EQ(servers.refusal(ArmSpec::parse("fp8_scale1/bf16=0")),
            "no server of fp8_scale1/bf16=0 was named: start one and add --candidate "
            "fp8_scale1/bf16=0=URL");
}

}  // namespace
}  // namespace kv
