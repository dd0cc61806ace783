#include "study/continuation_pass.h"

#include <algorithm>

#include "evaluate/generation.h"
#include "evaluate/logit_metrics.h"
#include "study/generation_records.h"

namespace kv {
namespace {

/// 0 alone where decoding is greedy.
std::vector<int64_t> samples_of(const AnswerSampling& sampling) {
  if (sampling.how.is_greedy()) return {0};
  std::vector<int64_t> out;
  for (int64_t sample = 1; sample <= sampling.samples; ++sample) out.push_back(sample);
  return out;
}

bool is_done(const RecordLog& log, const Prompt& prompt, const std::vector<std::string>& arms,
             const ContinuationOptions& options) {
  for (const std::string& arm : arms) {
    for (const int64_t sample : samples_of(options.sampling)) {
      if (!log.has(generation_record_id(options.block, arm, prompt.id, sample))) return false;
    }
  }
  return true;
}

/// The continuations of a prompt under all arms of the engine: [arm * samples + sample].
std::vector<Generation> continue_prompt(Engine& engine, const Prompt& prompt,
                                        const ContinuationOptions& options) {
  const std::span<const int32_t> tokens(prompt.tokens);
  std::vector<Sequence> contexts, forks;
  for (int arm = 0; arm < engine.num_arms(); ++arm) contexts.push_back(engine.start(arm));
  std::vector<Request> requests;
  for (Sequence& context : contexts) {
    requests.push_back({&context, tokens.first(tokens.size() - 1), -1, nullptr});
  }
  if (tokens.size() > 1) engine.run(requests);
  std::vector<uint64_t> streams;
  for (const Sequence& context : contexts) {
    for (const int64_t sample : samples_of(options.sampling)) {
      forks.push_back(context.fork());
      streams.push_back(sample_stream(options.sampling.seed, "", prompt.id, sample));
    }
  }
  std::vector<Sequence*> sequences;
  for (Sequence& fork : forks) sequences.push_back(&fork);
  const std::vector<int32_t> first(forks.size(), tokens.back());
  const ModelSpec& spec = engine.model().spec();
  const int64_t room = spec.max_positions - std::ssize(tokens) + 1;
  return engine.generate(sequences, first, std::min(options.tokens, room), spec.eos_ids,
                         options.sampling.how, streams);
}

/// In the order of the generations; the control's arm is the first.
std::vector<GenerationRecord> records_of(const std::vector<Generation>& generated,
                                         const Prompt& prompt, const std::vector<std::string>& arms,
                                         const ContinuationOptions& options) {
  const PositionBuckets buckets(options.bucket_edges);
  const std::vector<int64_t> samples = samples_of(options.sampling);
  std::vector<GenerationRecord> out;
  for (size_t i = 0; i < generated.size(); ++i) {
    const size_t sample = i % samples.size();
    GenerationRecord record = generation_of({}, attempt_of(generated[i]));
    record.block = options.block;
    record.arm = arms[i / samples.size()];
    record.example_id = prompt.id;
    record.document = prompt.cluster.empty() ? prompt.id : prompt.cluster;
    record.bucket = buckets.label(std::ssize(prompt.tokens));
    record.sample = samples[sample];
    record.record_id = generation_record_id(options.block, record.arm, prompt.id, record.sample);
    if (i >= samples.size()) {
      record.margins.clear();
      compare_with_control(record, out[sample]);
    }
    out.push_back(std::move(record));
  }
  return out;
}

}  // namespace

void run_continuation_pass(const std::shared_ptr<const Model>& model,
                           std::span<const Prompt> prompts, std::span<const ArmToRun> arms,
                           const ContinuationOptions& options, RecordLog& log, Progress& progress) {
  std::vector<std::string> names = {"bf16"};
  for (const ArmToRun& arm : arms) names.push_back(arm.spec.text());
  std::vector<const Prompt*> left;
  int64_t longest = 0, done = 0;
  for (const Prompt& prompt : prompts) {
    if (is_done(log, prompt, names, options)) continue;
    left.push_back(&prompt);
    longest = std::max(longest, std::ssize(prompt.tokens));
  }
  if (left.empty()) return;
  // Each fork copies the block that it begins in, and may end in one that is not full.
  const int64_t of_fork = options.tokens + 2 * options.plan.block_size;
  const int64_t capacity =
      longest + options.plan.block_size + std::ssize(samples_of(options.sampling)) * of_fork;
  Engine engine(model, options.plan);
  engine.add_arm(ArmSpec{}, std::nullopt, capacity);
  for (const ArmToRun& arm : arms) engine.add_arm(arm.spec, arm.scales, capacity);
  for (const Prompt* prompt : left) {
    progress.check();
    std::vector<GenerationRecord> records =
        records_of(continue_prompt(engine, *prompt, options), *prompt, names, options);
    std::erase_if(records,
                  [&](const GenerationRecord& record) { return log.has(record.record_id); });
    log.append(records);
    progress.update("continuations: " + options.block, ++done, std::ssize(left), "prompts");
  }
  std::vector<ArmFacts> facts;
  for (int arm = 0; arm < engine.num_arms(); ++arm) facts.push_back(engine.facts(arm));
  record_facts(facts, log);
}

}  // namespace kv
