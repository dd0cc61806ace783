#include "study/forced_pass.h"

#include <fmt/core.h>

#include "kvscale/error.h"

namespace kv {
namespace {

/// The prompt with what the control writes after it; stop ids do not end it.
Prompt continued(Engine& engine, const Prompt& prompt, const ForcedOptions& options) {
  Prompt out = prompt;
  Sequence sequence = engine.start(0);
  const std::span<const int32_t> tokens(prompt.tokens);
  if (tokens.size() > 1) {
    const Request request{&sequence, tokens.first(tokens.size() - 1), -1, nullptr};
    engine.run({&request, 1});
  }
  Sequence* one = &sequence;
  const uint64_t stream = sample_stream(options.seed, "", prompt.id, 1);
  const auto written = engine.generate({&one, 1}, tokens.last(1), options.tokens, {},
                                       options.sampling, {&stream, 1});
  out.tokens.insert(out.tokens.end(), written.front().tokens.begin(), written.front().tokens.end());
  return out;
}

void expect_room(const Prompt& prompt, int64_t tokens, int64_t max_positions) {
  const int64_t room = max_positions - std::ssize(prompt.tokens);
  if (!prompt.tokens.empty() && tokens <= room) return;
  throw ValueError(fmt::format("forced: prompt {} of {} tokens leaves room for {}, found {}",
                               prompt.id, prompt.tokens.size(), room, tokens));
}

}  // namespace

std::vector<int64_t> forced_edges(int64_t tokens) {
  std::vector<int64_t> out;
  for (int64_t edge = 64; edge < tokens; edge *= 4) out.push_back(edge);
  out.push_back(tokens);
  return out;
}

void run_forced_pass(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                     std::span<const ArmToRun> arms, const ForcedOptions& options, RecordLog& log,
                     Progress& progress) {
  for (const Prompt& prompt : prompts)
    expect_room(prompt, options.tokens, model->spec().max_positions);
  int64_t done = 0;
  for (const Prompt& prompt : prompts) {
    progress.check();
    LogitPassOptions pass{kForcedBlock, options.edges, options.plan};
    pass.given = std::ssize(prompt.tokens);
    Prompt shape = prompt;
    shape.tokens.resize(prompt.tokens.size() + static_cast<size_t>(options.tokens));
    if (has_logits(log, shape, arms, pass)) continue;
    Engine engine(model, options.plan);
    engine.add_arm(ArmSpec{}, std::nullopt, pass.given + options.tokens, 1);
    const Prompt whole = continued(engine, prompt, options);
    run_logit_pass(model, {&whole, 1}, arms, pass, log, progress);
    progress.update("forced generations", ++done, std::ssize(prompts), "prompts");
  }
}

}  // namespace kv
