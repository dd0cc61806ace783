#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/engine.h"
#include "evaluate/example.h"
#include "study/progress.h"

namespace kv {

/// Feeds prompts to the control, one after another and each alone in its pass, with an observer
/// looking on; `after_each` is told the prompt's index. What the observer sees is the tokens of
/// these prompts and nothing else: a pass is not padded, and no template is added.
void observe(const std::shared_ptr<const Model>& model, std::span<const Prompt* const> prompts,
             const BatchPlan& plan, const std::string& stage, AttentionObserver& observer,
             Progress& progress, const std::function<void(size_t)>& after_each);

}  // namespace kv
