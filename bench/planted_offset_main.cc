// An offset planted into a real model: adds a constant to every key of some layers after RoPE,
// which no softmax sees but the codes of FP8 do, and decides about that model.
//
//   kv_planted_offset search MODEL LAYERS                LAYERS: as 3,7
//   kv_planted_offset decide MODEL LAYERS SIZE FOLDER [BUCKETS] [DOCUMENTS]
//
// search: the size that costs every FP8 layout 5 points of 105 questions of 256 tokens.
// decide: the decision of the quick margin about the model with the offset, at BUCKETS (default
// 256,512) with DOCUMENTS (default 50) of 4 questions each; then the model without it answers the
// same questions with BF16, and the planted control must not be worse by the same margins. FOLDER
// gets records.jsonl, decision.json, unplanted.jsonl and summary.md; the same command goes on
// there.
//
// Exit code 0: SELECTIVE_BF16 with these layers and a control that is not worse; else 1.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>

#include "checkpoint/load_tokenizer.h"
#include "decide/compare_scores.h"
#include "decide/verdict_json.h"
#include "evaluate/generators.h"
#include "evaluate/scorers.h"
#include "model/model.h"
#include "study/calibration_pass.h"
#include "study/decide_study.h"
#include "study/own_text.h"
#include "tensor/atomic_file.h"

namespace {

using namespace kv;

constexpr double kLoss = 0.05;                      // that every FP8 layout must show
constexpr int64_t kDocuments = 15, kQuestions = 7;  // of the search
const std::vector<std::string> kArms = {"bf16", "fp8_scale1", "fp8_tensor", "fp8_head",
                                        "fp8_token_head"};

std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> out;
  std::stringstream in(text);
  for (std::string one; std::getline(in, one, ',');) out.push_back(std::stoll(one));
  return out;
}

std::shared_ptr<const Model> with_offset(std::shared_ptr<const Model> model,
                                         std::span<const int64_t> layers, float size) {
  std::vector<float> offset(
      static_cast<size_t>(model->spec().num_kv_heads * model->spec().head_dim));
  for (size_t i = 0; i < offset.size(); ++i) offset[i] = i % 2 == 0 ? size : -size;
  for (const int64_t layer : layers) model = model->with_key_offset(layer, offset);
  return model;
}

/// Share of right answers by arm, in the order of kArms.
std::vector<double> answered(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                             const std::vector<Document>& documents) {
  NoProgress silent;
  std::vector<Prompt> contexts;
  for (const Document& one : documents)
    contexts.push_back({one.id, "", one.context, {}, Check::kContains});
  const Calibration scales = calibrate(model, contexts, {}, {}, silent);
  std::vector<RunnerArm> arms;
  for (const std::string& one : kArms) {
    RunnerArm arm{one, {ArmSpec::parse(one), {}}, false};
    if (arm.arm.spec.needs_scales()) arm.arm.scales = scales.scales(one == "fp8_head");
    arms.push_back(std::move(arm));
  }
  EngineRunner runner(model, {}, model->spec().eos_ids, line_end_ids(tokenizer), 64);
  std::vector<double> right(kArms.size());
  double all = 0;
  for (const Document& document : documents) {
    const auto answers = runner.answer(document, arms);
    for (size_t q = 0; q < document.questions.size(); ++q, all += 1) {
      const Question& question = document.questions[q];
      for (size_t a = 0; a < arms.size(); ++a) {
        right[a] += score_tokens(question.check, question.answer_tokens,
                                 answers[a][q].attempts.front().produced)
                        .value;
      }
    }
  }
  for (double& one : right) one /= all;
  return right;
}

/// The smallest size, by doubling, at which every FP8 layout loses kLoss against the planted
/// control.
float found_size(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                 std::span<const int64_t> layers) {
  GeneratorOptions options;
  options.task = "niah_single";
  options.buckets = {256};
  options.documents = kDocuments;
  options.questions_per_document = kQuestions;
  options.master_seed = 9;
  const auto documents = generate(tokenizer, options);
  fmt::print("| offset | {} |\n|{}\n", fmt::join(kArms, " | "),
             " --- |"
             " --- | --- | --- | --- | --- |");
  for (float size = 0; size < 448; size = size == 0 ? 6 : 2 * size) {
    const auto right = answered(with_offset(model, layers, size), tokenizer, documents);
    fmt::print("| {:g} | {:.3f} |\n", size, fmt::join(right, " | "));
    std::fflush(stdout);
    if (*std::max_element(right.begin() + 1, right.end()) <= right.front() - kLoss) return size;
  }
  throw std::runtime_error("no size up to 384 costs every layout 5 points");
}

/// Says on standard error how far it is, at most once a second.
class Lines : public Progress {
 public:
  void update(std::string_view stage, int64_t done, int64_t total, std::string_view unit) override {
    const auto now = std::chrono::steady_clock::now();
    if (done < total && now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    fmt::print(stderr, "{}: {} of {} {}\n", stage, done, total, unit);
  }
  void check() override {}

 private:
  std::chrono::steady_clock::time_point last_;
};

struct Decided {
  Verdict verdict;
  std::vector<Document> documents;  // of block E1
};

Decided decided(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                const StudyOptions& options, RecordLog& log, Progress& progress) {
  Prompt own{"text", "", tokenizer.encode(own_text()), {}, Check::kContains};
  CalibrationSource source;
  source.model_sha256 = model->checkpoint().content_sha256();
  DecideStudy study(model, tokenizer, {&own, 1}, source, options, log.path().parent_path(), log,
                    progress);
  Decided out{study.run(), {}};
  if (study.documents().contains("E1")) out.documents = study.documents().at("E1");
  return out;
}

/// BF16 answers of the model without the offset to the questions of E1, as records.
void answer_unplanted(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                      const std::vector<Document>& documents, RecordLog& log, Progress& progress) {
  const RunnerArm control{std::string(kControlArm), {}, false};
  EngineRunner runner(model, {}, model->spec().eos_ids, line_end_ids(tokenizer), 64);
  for (size_t done = 0; done < documents.size(); ++done) {
    const Document& document = documents[done];
    progress.update("the model without the offset", static_cast<int64_t>(done),
                    std::ssize(documents), "documents");
    if (log.has("E1/bf16/" + document.questions.back().id)) continue;
    const auto answers = runner.answer(document, {&control, 1}).front();
    std::vector<ExampleRecord> records;
    for (size_t q = 0; q < answers.size(); ++q) {
      const Question& question = document.questions[q];
      ExampleRecord record;
      record.record_id = "E1/bf16/" + question.id;
      record.block = "E1";
      record.arm = kControlArm;
      record.example_id = question.id;
      record.document = document.id;
      record.task = document.task;
      record.bucket = document.bucket;
      record.look = document.look;
      record.half = document.half;
      record.prompt_tokens = answers[q].prompt_tokens;
      record.answer_logprob = answers[q].logprob;
      record.kernel = answers[q].kernel;
      record.score =
          score_tokens(question.check, question.answer_tokens, answers[q].attempts.front().produced)
              .value;
      records.push_back(std::move(record));
    }
    log.append(records);
  }
}

std::string row_of(const std::string& block, const std::string& arm, const std::string& reference,
                   const std::string& bucket, const auto& row) {
  return fmt::format(
      "| {} | {} | {} | {} | {} | {:.1f} | {:+.1f} [{:+.1f}, {:+.1f}]; {:g}, {:g} |\n", block, arm,
      reference, bucket, row.n, 100 * row.mean_ctrl, 100 * row.diff, 100 * row.interval.lo,
      100 * row.interval.hi, row.losses, row.gains);
}

std::string rows_of(const ArmTable& table, const std::string& arm, const std::string& reference) {
  std::string out;
  for (const BucketRow& row : table.buckets)
    out += row_of(table.block, arm, reference, row.bucket, row);
  return out + row_of(table.block, arm, reference, "all", table.overall);
}

std::string summary(const Verdict& verdict, const ScoreComparison& control,
                    const std::string& what) {
  std::string out = fmt::format(
      "{}\n\n{}, layers in BF16: {}\n{}\n\n| block | arm | against | bucket | n | it, % right | "
      "difference, points; lost, won |\n| --- | --- | --- | --- | --- | --- | --- |\n",
      what, name(verdict.outcome), fmt::join(verdict.bf16_layers, ","), verdict.sentence);
  for (const ArmTable& table : verdict.tables) out += rows_of(table, table.arm, table.reference);
  out += rows_of(control.table, "bf16, planted", "bf16, without the offset");
  out += fmt::format(
      "\nthe planted control is {} by these margins\n\n| arm | KLD, nats | of the excess gone |\n| "
      "--- | --- | --- |\n",
      control.table.is_pass ? "not worse" : "NOT shown to be no worse");
  for (const AblationPoint& point : verdict.ablation)
    out += fmt::format("| {} | {:.4g} | {:.0f} % |\n", point.arm, point.kld,
                       100 * point.share_removed);
  for (const Reason& reason : verdict.reasons)
    out += fmt::format("\n- {}: {}", reason.rule, reason.text);
  return out + "\n";
}

int decide(const std::vector<std::string>& args) {
  const std::vector<int64_t> layers = numbers_of(args[1]);
  const float size = std::stof(args[2]);
  const std::filesystem::path folder = args[3];
  StudyOptions options;
  options.decide = DecideOptions::quick();
  options.decide.commands.repeat = "kvscale decide MODEL";
  options.tasks = {"niah_single"};
  options.buckets = args.size() > 4 ? numbers_of(args[4]) : std::vector<int64_t>{256, 512};
  if (args.size() > 5) options.decide.documents = std::stoll(args[5]);
  const auto start = std::chrono::steady_clock::now();
  const auto plain = Model::load(Checkpoint::open(args[0]));
  const Tokenizer tokenizer = load_tokenizer(plain->checkpoint());
  std::filesystem::create_directories(folder);
  RecordLog log(folder / "records.jsonl"), unplanted(folder / "unplanted.jsonl");
  Lines progress;
  const auto [verdict, documents] =
      decided(with_offset(plain, layers, size), tokenizer, options, log, progress);
  write_file_atomically(folder / "decision.json", verdict_json(verdict));
  answer_unplanted(plain, tokenizer, documents, unplanted, progress);
  const ScoreComparison control = compare_scores(
      options.decide, scores_of_records(unplanted.records(), unplanted.path(), "bf16", "E1"),
      scores_of_records(log.records(), log.path(), "bf16", "E1"), nullptr);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::string text = summary(verdict, control,
                                   fmt::format("offset {:g} in layers {} of {}, {:.0f} s", size,
                                               args[1], args[0], took.count()));
  write_file_atomically(folder / "summary.md", text);
  fmt::print("{}", text);
  const bool is_right = verdict.outcome == Outcome::kSelectiveBf16 &&
                        verdict.bf16_layers == std::vector<int>(layers.begin(), layers.end());
  return is_right && control.table.is_pass ? 0 : 1;
}

int search(const std::vector<std::string>& args) {
  const auto model = Model::load(Checkpoint::open(args[0]));
  fmt::print("\noffset {:g} in layers {}\n",
             found_size(model, load_tokenizer(model->checkpoint()), numbers_of(args[1])), args[1]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> args(argv + std::min(argc, 2), argv + argc);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "search" && args.size() == 2) return search(args);
  if (what == "decide" && args.size() >= 4 && args.size() <= 6) return decide(args);
  throw std::runtime_error(
      "expected search MODEL LAYERS, or decide MODEL LAYERS SIZE FOLDER [BUCKETS] [DOCUMENTS]");
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
