#pragma once

#include <span>
#include <string>

#include "decide/verdict.h"
#include "report/facts.h"
#include "report/text_style.h"

namespace kv {

/// One run among several.
struct RunRow {
  std::string folder;
  std::string link;  // to its page, from the page that is made
  const Verdict* verdict = nullptr;
  ModelFacts model;
  PromptFacts prompts;
  bool is_current = true;  // its decision.json is what its records give
};

/// Several runs beside each other: a table with model, margin, verdict, worst bucket and capacity,
/// and each run's sentence with a link to its page. Runs of other margins, prompts or models stand
/// beside each other, but nothing is subtracted between runs.
std::string runs_page(std::span<const RunRow> runs);

/// The table on a terminal; ends with a newline.
std::string runs_text(std::span<const RunRow> runs, const TextStyle& style);

}  // namespace kv
