#pragma once

#include <string>

#include "decide/verdict.h"
#include "evaluate/record_log.h"
#include "report/facts.h"
#include "report/text_style.h"

namespace kv {

/// Files of a run that its page holds, so that the page alone tells how it came to be.
struct RunFiles {
  std::string records;        // records.jsonl, to be saved from the page
  std::string configuration;  // configuration.txt, shown
};

/// A verdict and what it rests on. Verdict and records must outlive the report.
struct VerdictReport {
  const Verdict& verdict;
  const Records& records;  // ranges, arms and capacities are shown, examples are not
  ModelFacts model;
  PromptFacts prompts;
  RunFacts run;
  RunFiles files = {};
};

/// What a comparison shows, never "no significant difference": "not worse than BF16 by more than 2
/// points in any bucket and 1 point overall (one-sided level 0.025, n >= 1,000 a bucket)", or the
/// buckets that lose, or those that stay open.
std::string comparison_sentence(const ArmTable& table, const DecideOptions& options);

/// The verdict as Markdown that reads well on a terminal: outcome with margin, comparisons by
/// bucket, reasons with the ids of their records, launch flags, next commands. Lines of prose and
/// tables are at most style.width columns; commands are never broken. Ends without a newline.
std::string verdict_markdown(const VerdictReport& report, const TextStyle& style);

/// report.html: one file, no network. Every reason links to its record; a record that the page does
/// not show is named in a list at its end.
std::string verdict_page(const VerdictReport& report);

}  // namespace kv
