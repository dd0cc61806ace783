#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/facts.h"
#include "report/text_style.h"

namespace kv {

/// Facts as names and values, for lists on a terminal and in a page; empty facts are left out.
/// Values are printable.
using FactList = std::vector<std::pair<std::string, std::string>>;
FactList model_list(const ModelFacts& model, const PromptFacts& prompts);
FactList run_list(const RunFacts& run);

/// The same as lines.
std::string model_text(const ModelFacts& model, const PromptFacts& prompts, const TextStyle& style);
std::string run_text(const RunFacts& run, const TextStyle& style);

/// Throws ValueError when the style's width is below 72.
void check_style(const TextStyle& style);

}  // namespace kv
