#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/facts.h"
#include "evaluate/filler.h"
#include "evaluate/generators.h"
#include "evaluate/question_cut.h"

namespace kv {

/// A fact with its costs in tokens, as a line of the context and asked for.
struct PricedFact {
  Fact fact;
  int64_t line_cost = 0;
  int64_t asking_cost = 0;  // question and answer
};

/// The text of a context before its tail, and what is asked about it.
struct Draft {
  std::string body;
  std::vector<PricedFact> asked;
};

/// Writes the texts of one task's documents.
class DraftMaker {
 public:
  /// Keeps the references.
  DraftMaker(const Tokenizer& tokenizer, const GeneratorOptions& options, const QuestionCut& cut)
      : options_(options), cut_(cut), filler_(tokenizer, options.filler) {}

  /// Document `index` of the bucket `target`. `tokens` is what the body and the longest question
  /// with its answer should cost together. The same arguments give the same draft.
  Draft draft(int64_t target, int64_t index, int64_t tokens) const;

  int64_t cost(std::string_view text) const { return filler_.cost(text); }

 private:
  PricedFact price(Fact fact) const;
  Draft draft_list(int64_t target, int64_t index, int64_t tokens) const;
  Draft draft_text(int64_t target, int64_t index, int64_t tokens) const;
  std::vector<PricedFact> facts_of_like_cost(FactMaker& maker, int64_t target) const;
  std::vector<PricedFact> choose_lines(const std::vector<PricedFact>& lines,
                                       const std::vector<double>& depths, int64_t target) const;
  std::vector<double> depths(int64_t target, int64_t index) const;

  const GeneratorOptions& options_;
  const QuestionCut& cut_;
  FillerMaker filler_;
};

/// Throws UnsupportedError saying which documents cannot be made, and why.
[[noreturn]] void refuse_documents(const GeneratorOptions& options, int64_t target,
                                   std::string_view why);

}  // namespace kv
