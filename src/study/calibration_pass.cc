#include "study/calibration_pass.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "calibrate/fingerprint.h"
#include "study/observe.h"
#include "tensor/atomic_file.h"
#include "tensor/mapped_file.h"
#include "text/sha256.h"

namespace kv {
namespace {

constexpr std::string_view kCalibrationBlock = "CAL";
constexpr std::string_view kValuesMagic = "kvscale-values 1\n";
constexpr size_t kHashBytes = 64;

std::string record_id_of(std::string_view block, const std::string& example) {
  return fmt::format("amax/{}/{}", block, example);
}

void add_tokens(const std::vector<int32_t>& tokens, Sha256& hash) {
  hash.add_field({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)});
}

/// Amax and, where wanted, histograms of one example after another.
class ExampleObserver : public AttentionObserver {
 public:
  ExampleObserver(const ModelSpec& spec, ValueObserver* values)
      : amax(spec.num_layers, spec.num_kv_heads), values_(values) {}
  void on_attention(const AttentionTap& tap) override {
    amax.on_attention(tap);
    if (values_ != nullptr) values_->on_attention(tap);
  }

  AmaxObserver amax;

 private:
  ValueObserver* values_;
};

void save_values(const std::filesystem::path& file, const ValueObserver& values, int64_t examples) {
  std::string body(reinterpret_cast<const char*>(&examples), sizeof(examples));
  body += values.bytes();
  write_file_atomically(file, fmt::format("{}{}", kValuesMagic, sha256_hex(body)) + body);
}

/// Reads what save_values() wrote; gives the number of examples, 0 when there is no file. What is
/// not such a file does not count: the examples are run again.
int64_t load_values(const std::filesystem::path& file, ValueObserver& values) {
  if (file.empty() || !std::filesystem::exists(file)) return 0;
  const MappedFile mapped(file);
  std::string_view bytes(reinterpret_cast<const char*>(mapped.bytes().data()),
                         mapped.bytes().size());
  int64_t examples = 0;
  if (!bytes.starts_with(kValuesMagic)) return 0;
  bytes.remove_prefix(kValuesMagic.size());
  if (bytes.size() < kHashBytes + sizeof(examples)) return 0;
  const std::string_view hash = bytes.substr(0, kHashBytes);
  bytes.remove_prefix(kHashBytes);
  if (sha256_hex(bytes) != hash) return 0;
  std::memcpy(&examples, bytes.data(), sizeof(examples));
  bytes.remove_prefix(sizeof(examples));
  values.read(bytes, file.string());
  return examples;
}

/// Where the examples' records are: in a log, or with nobody.
class Examples {
 public:
  Examples(std::span<const CalibrationExample> examples, RecordLog* log)
      : examples_(examples), log_(log), found_(examples.size()) {
    if (log == nullptr) return;
    std::map<std::string_view, const AmaxRecord*> recorded;
    for (const AmaxRecord& record : log->amaxes()) recorded[record.record_id] = &record;
    for (size_t i = 0; i < examples.size(); ++i) {
      const auto one = recorded.find(record_id_of(kCalibrationBlock, examples[i].prompt.id));
      if (one != recorded.end()) found_[i] = {one->second->tokens, one->second->amax};
    }
  }

  bool has(size_t i) const { return !found_[i].amax.empty(); }

  void add(size_t i, const AmaxObserver& observer) {
    const CalibrationExample& example = examples_[i];
    const ExampleAmax seen = read_example(observer, example.prompt.id);
    if (has(i)) return;
    found_[i] = seen;
    if (log_ == nullptr) return;
    log_->append(amax_record(observer, std::string(kCalibrationBlock), example.prompt.id,
                             example.task, example.bucket, example.prompt.language));
  }

  std::vector<ExampleAmax> take() { return std::move(found_); }

 private:
  std::span<const CalibrationExample> examples_;
  RecordLog* log_;
  std::vector<ExampleAmax> found_;
};

CalibrationPass run_pass(const std::shared_ptr<const Model>& model,
                         std::span<const CalibrationExample> examples,
                         const CalibrationOptions& options, RecordLog* log, Progress& progress) {
  const ModelSpec& spec = model->spec();
  CalibrationPass pass;
  Examples found(examples, log);
  size_t saved = examples.size();
  if (options.keep_values || options.estimator.needs_values()) {
    pass.values.emplace(spec.num_layers, spec.num_kv_heads);
    saved = static_cast<size_t>(load_values(options.values_file, *pass.values));
    for (size_t i = 0; i < saved; ++i) {
      if (i < examples.size() && found.has(i)) continue;
      pass.values.emplace(spec.num_layers, spec.num_kv_heads);  // of other examples
      saved = 0;
    }
  }
  std::vector<size_t> left;
  std::vector<const Prompt*> prompts;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (found.has(i) && i < saved) continue;
    left.push_back(i);
    prompts.push_back(&examples[i].prompt);
  }
  ExampleObserver observer(spec, pass.values ? &*pass.values : nullptr);
  int64_t unsaved = 0;
  observe(model, prompts, options.plan, "amax", observer, progress, [&](size_t done) {
    found.add(left[done], observer.amax);
    observer.amax.reset();
    unsaved += std::ssize(prompts[done]->tokens);
    const bool is_due = unsaved >= options.tokens_between_saves || done + 1 == left.size();
    if (!pass.values || options.values_file.empty() || !is_due) return;
    save_values(options.values_file, *pass.values, static_cast<int64_t>(left[done]) + 1);
    unsaved = 0;
  });
  pass.examples = found.take();
  return pass;
}

}  // namespace

AmaxRecord amax_record(const AmaxObserver& observer, const std::string& block,
                       const std::string& example, const std::string& task,
                       const std::string& bucket, const std::string& language) {
  AmaxRecord out;
  out.record_id = record_id_of(block, example);
  out.block = block;
  out.example_id = example;
  out.task = task;
  out.bucket = bucket;
  out.language = language;
  out.tokens = observer.tokens(0);
  out.kv_heads = observer.num_kv_heads();
  out.amax = observer.amax();
  return out;
}

CalibrationPass run_calibration_pass(const std::shared_ptr<const Model>& model,
                                     std::span<const CalibrationExample> examples,
                                     const CalibrationOptions& options, RecordLog& log,
                                     Progress& progress) {
  return run_pass(model, examples, options, &log, progress);
}

Calibration calibration_of(const Model& model, const CalibrationPass& pass,
                           std::span<const CalibrationExample> examples, const Estimator& estimator,
                           const CalibrationSource& source) {
  CalibrationSource counted = source;
  add_model_fields(model.spec(), counted);
  std::vector<bool> fed(static_cast<size_t>(model.spec().vocab_size));
  Sha256 hash;
  for (const CalibrationExample& example : examples) {
    ++counted.languages[example.prompt.language];
    ++counted.task_mix[example.task];
    const std::vector<int32_t>& tokens = example.prompt.tokens;
    add_tokens(tokens, hash);
    for (const int32_t id : tokens) fed.at(static_cast<size_t>(id)) = true;
  }
  for (size_t id = 0; id < fed.size(); ++id) {
    if (fed[id]) counted.token_ids.push_back(static_cast<int32_t>(id));
  }
  counted.prompts_sha256 = hash.hex();
  return finish_calibration(model.spec().num_layers, model.spec().num_kv_heads,
                            std::span(pass.examples).first(examples.size()), estimator,
                            pass.values ? &*pass.values : nullptr, counted);
}

std::vector<CalibrationExample> calibration_examples(std::span<const Prompt> prompts) {
  std::vector<CalibrationExample> out;
  for (const Prompt& prompt : prompts) {
    out.push_back({prompt, "", fmt::format("{}", length_bin(std::ssize(prompt.tokens)))});
  }
  return out;
}

Calibration calibrate(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                      const CalibrationSource& source, const BatchPlan& plan, Progress& progress) {
  const std::vector<CalibrationExample> examples = calibration_examples(prompts);
  CalibrationOptions options;
  options.plan = plan;
  const CalibrationPass pass = run_pass(model, examples, options, nullptr, progress);
  return calibration_of(*model, pass, examples, options.estimator, source);
}

std::string prompts_sha256(std::span<const Prompt> prompts) {
  Sha256 hash;
  for (const Prompt& prompt : prompts) add_tokens(prompt.tokens, hash);
  return hash.hex();
}

}  // namespace kv
