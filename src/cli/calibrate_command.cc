#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "calibrate/warmup.h"
#include "cli/session.h"
#include "kvscale/error.h"
#include "study/calibration_pass.h"
#include "study/logit_pass.h"

namespace kv::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

// KLD of warm-up scales is measured on so many tokens of the requests after them: three passes.
constexpr int64_t kWarmupKldTokens = 2048;

/// Scales of the first requests beside those of all.
struct Warmup {
  Calibration all;
  std::vector<WarmupLoss> losses;
  int64_t tokens = 0;           // that the KLD was measured on
  double kld = 0, kld_all = 0;  // nats, one scale per layer
  std::string all_file;
};

/// The requests after the warm-up, as many as fit; at least one.
std::vector<Prompt> after_warmup(const std::vector<Prompt>& prompts, int64_t warmup) {
  std::vector<Prompt> out;
  int64_t tokens = 0;
  for (size_t i = static_cast<size_t>(warmup); i < prompts.size(); ++i) {
    tokens += std::ssize(prompts[i].tokens);
    if (!out.empty() && tokens > kWarmupKldTokens) break;
    out.push_back(prompts[i]);
  }
  return out;
}

void measure_kld(const std::shared_ptr<const Model>& model, const std::vector<Prompt>& prompts,
                 const Calibration& first, RecordLog& log, Progress& progress, Warmup& warmup) {
  std::vector<ArmToRun> arms;
  for (const Calibration* one : {&first, &std::as_const(warmup.all)}) {
    ArmSpec spec;
    spec.layout = ArmLayout::kFp8Tensor;
    spec.scale_file = one == &first ? "scales.json" : warmup.all_file;
    arms.push_back({spec, one->scales(false)});
  }
  const int64_t edge = model->spec().max_positions;
  run_logit_pass(model, prompts, arms, {"warmup", {edge}, BatchPlan{}}, log, progress);
  const ArmRecord warm = summarize_arm(log, "warmup", arms[0].spec.text());
  warmup.tokens = warm.tokens;
  warmup.kld = warm.kld;
  warmup.kld_all = summarize_arm(log, "warmup", arms[1].spec.text()).kld;
}

OrderedJson number(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

OrderedJson warmup_json(const Warmup& warmup) {
  OrderedJson layers = OrderedJson::array();
  for (const WarmupLoss& one : warmup.losses) {
    layers.push_back({{"layer", one.layer},
                      {"side", name(one.side)},
                      {"amax_warmup", one.warmup_amax},
                      {"amax", one.amax},
                      {"amax_ratio", number(one.amax_ratio())},
                      {"values", one.values},
                      {"clipped", one.clipped}});
  }
  return {{"scale_file_of_all", warmup.all_file},
          {"kld_tokens", warmup.tokens},
          {"kld", number(warmup.kld)},
          {"kld_of_all", number(warmup.kld_all)},
          {"layers", std::move(layers)}};
}

void print_json(const std::string& file, const Calibration& c,
                const std::optional<Warmup>& warmup) {
  OrderedJson out = {{"scale_file", file},
              {"estimator", c.estimator.text()},
              {"examples", c.source.examples},
              {"tokens", c.source.tokens},
              {"warnings", c.warnings.size()}};
  if (warmup) out["warmup"] = warmup_json(*warmup);
  fmt::print("{}\n", out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

void print_text(const std::string& file, const Calibration& c,
                const std::optional<Warmup>& warmup) {
  fmt::print(
      "{}: scales of {} layers from {} prompts, {} tokens (longest {}), estimator {}\n"
      "use them as an arm: fp8_tensor/scales={} or fp8_head/scales={}\n",
      file, c.num_layers, c.source.examples, c.source.tokens, c.source.max_tokens,
      c.estimator.text(), file, file);
  if (!warmup) return;
  fmt::print(
      "{}\nKLD with one scale per layer over {} tokens of the other requests: {:.4g} nats, with "
      "scales of all requests ({}) {:.4g}\n",
      warmup_text(c, warmup->all, warmup->losses), warmup->tokens, warmup->kld, warmup->all_file,
      warmup->kld_all);
}

/// What the scales of the first requests miss of all of them.
Warmup compare_with_all(const std::shared_ptr<const Model>& model,
                        const std::vector<Prompt>& prompts, const Calibration& first,
                        const std::filesystem::path& folder, RecordLog& log, Progress& progress) {
  const std::vector<CalibrationExample> examples = calibration_examples(prompts);
  const CalibrationOptions options{first.estimator, true, folder / "values-all.bin", BatchPlan{}};
  const CalibrationPass pass = run_calibration_pass(model, examples, options, log, progress);
  Warmup out;
  out.all = calibration_of(*model, pass, examples, first.estimator, first.source);
  out.all_file = (folder / "scales-all.json").string();
  write_calibration(out.all_file, out.all);
  out.losses = compare_warmup(first, out.all, *pass.values);
  measure_kld(model, after_warmup(prompts, first.source.examples), first, log, progress, out);
  return out;
}

}  // namespace

int run_calibrate(const CalibrateArgs& args) {
  if (args.run.prompts.empty()) {
    throw ValueError(
        "calibrate: --prompts: expected a file; scales come from the prompts that will be served");
  }
  const Estimator estimator = Estimator::parse(args.estimator);
  Session session(args.run);
  const std::vector<Prompt> prompts = session.prompts();
  if (args.warmup >= std::ssize(prompts)) {
    throw ValueError(
        fmt::format("calibrate: --warmup: expected fewer than the {} prompts of {}, found {}",
                    prompts.size(), args.run.prompts, args.warmup));
  }
  const auto folder = session.run_folder(
      "calibrate", fmt::format("estimator {} warmup {}", estimator.text(), args.warmup), prompts);
  ConsoleProgress progress(fmt::format("the same command goes on from {}", folder.string()));
  RecordLog log(folder / "records.jsonl", machine_name());
  const auto model = session.model(progress);
  const auto first =
      std::span(prompts).first(args.warmup > 0 ? static_cast<size_t>(args.warmup) : prompts.size());
  const std::vector<CalibrationExample> examples = calibration_examples(first);
  const CalibrationOptions options{estimator, false, folder / "values.bin", BatchPlan{}};
  const CalibrationPass pass = run_calibration_pass(model, examples, options, log, progress);
  const Calibration calibration =
      calibration_of(*model, pass, examples, estimator, session.calibration_source());
  const auto file = folder / "scales.json";
  write_calibration(file, calibration);
  std::optional<Warmup> warmup;
  if (args.warmup > 0) {
    warmup = compare_with_all(model, prompts, calibration, folder, log, progress);
  }
  progress.finish_line();
  for (const std::string& warning : calibration.warnings)
    fmt::print(stderr, "warning: {}\n", warning);
  if (args.run.json) {
    print_json(file.string(), calibration, warmup);
  } else {
    print_text(file.string(), calibration, warmup);
  }
  return kExitAccept;
}

}  // namespace kv::cli
