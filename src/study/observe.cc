#include "study/observe.h"

#include <algorithm>

namespace kv {

void observe(const std::shared_ptr<const Model>& model, std::span<const Prompt* const> prompts,
             const BatchPlan& plan, const std::string& stage, AttentionObserver& observer,
             Progress& progress, const std::function<void(size_t)>& after_each) {
  int64_t longest = 0, total = 0, done = 0;
  for (const Prompt* prompt : prompts) {
    longest = std::max(longest, std::ssize(prompt->tokens));
    total += std::ssize(prompt->tokens);
  }
  if (prompts.empty()) return;
  Engine engine(model, plan);
  engine.add_arm(ArmSpec{}, std::nullopt, longest, 1);
  for (size_t i = 0; i < prompts.size(); ++i) {
    progress.check();
    Sequence sequence = engine.start(0);
    const Request request{&sequence, prompts[i]->tokens, -1, &observer};
    engine.run({&request, 1});
    after_each(i);
    done += std::ssize(prompts[i]->tokens);
    progress.update(stage, done, total, "tokens");
  }
}

}  // namespace kv
