#pragma once

#include <map>
#include <string>
#include <vector>

#include "evaluate/record.h"
#include "report/facts.h"
#include "report/text_style.h"

namespace kv {

/// Everything that `kvscale scan` found.
struct ScanReport {
  ModelFacts model;
  PromptFacts prompts;
  RunFacts run;
  std::vector<RangeRecord> ranges;
  std::vector<FirstTokenRecord> first_tokens;  // may be empty
  std::vector<ArmRecord> arms;             // "bf16" among them; in the order of the table
  std::vector<LogitRecord> logits;         // per document and bucket; may be empty
  std::vector<CapacityRecord> capacities;  // by arm; an arm without one shows no gain
  std::map<std::string, std::vector<int>> bf16_layers;  // layout -> shortlist, may be empty
};

/// What the numbers mean, in one sentence (two or three clauses) composed by rules from the ranges,
/// the arms and the shortlists. Throws ValueError without ranges or without the arm "bf16".
std::string scan_sentence(const ScanReport& report);

/// Heat map of score noise (layers x layouts), table of arms, the sentence. Lines are at most 100
/// columns wide, the last one without its
/// newline. Throws as scan_sentence does.
std::string scan_text(const ScanReport& report, const TextStyle& style);

/// One JSON object with `layers[]`, `arms[]`, `bf16_layers`, the facts and the sentence.
/// Numbers that are not finite (kld_se with one document) are written as null.
std::string scan_json(const ScanReport& report);

/// A whole HTML page, one file, no network.
std::string scan_page(const ScanReport& report);

}  // namespace kv
