// An offset planted into a real model: adds a constant to every key of some layers after RoPE,
// which no softmax sees but the codes of FP8 do, searches the size that costs every FP8 layout 5
// points, and decides about that model.
//
//   kv_planted_offset MODEL LAYERS FOLDER      LAYERS: as 3,7; FOLDER: of the run, which resumes
//   there
//
// The verdict should be SELECTIVE_BF16 with these layers, and the control should not lose what the
// layouts lose.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "checkpoint/load_tokenizer.h"
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

std::vector<int64_t> layers_of(const std::string& text) {
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

Verdict decided(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  RecordLog log(folder / "records.jsonl");
  Prompt own{"text", "", tokenizer.encode(own_text()), {}, Check::kContains};
  CalibrationSource source;
  source.model_sha256 = model->checkpoint().content_sha256();
  StudyOptions options;
  options.decide = DecideOptions::quick();
  options.decide.commands.repeat = "kvscale decide MODEL";
  options.buckets = {256, 512};
  options.tasks = {"niah_single"};
  NoProgress silent;
  DecideStudy study(model, tokenizer, {&own, 1}, source, options, folder, log, silent);
  return study.run();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw std::runtime_error("expected MODEL LAYERS FOLDER");
  const std::vector<int64_t> layers = layers_of(argv[2]);
  const auto plain = Model::load(Checkpoint::open(argv[1]));
  const Tokenizer tokenizer = load_tokenizer(plain->checkpoint());
  const float size = found_size(plain, tokenizer, layers);
  const Verdict verdict = decided(with_offset(plain, layers, size), tokenizer, argv[3]);
  write_file_atomically(std::filesystem::path(argv[3]) / "decision.json", verdict_json(verdict));
  fmt::print("\noffset {:g} in layers {}: {}, layers in BF16: {}\n{}\n", size, argv[2],
             name(verdict.outcome), fmt::join(verdict.bf16_layers, ","), verdict.sentence);
  return verdict.bf16_layers == std::vector<int>(layers.begin(), layers.end()) ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
