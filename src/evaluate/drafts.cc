#include "evaluate/drafts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

/// Half the length in tokens that the questions of a document may differ by: all of them stay
/// within 1 % of the target.
int64_t half_spread(int64_t target) { return target / 100 / 2; }

}  // namespace

void refuse_documents(const GeneratorOptions& options, int64_t target, std::string_view why) {
  throw UnsupportedError(fmt::format("generator {}: {} tokens, {} questions a document: {}",
                                     options.task, target, options.questions_per_document, why));
}

PricedFact DraftMaker::price(Fact fact) const {
  PricedFact out;
  out.line_cost = cost(fact.line());
  out.asking_cost = cost(cut_.question(fact)) + cost(cut_.answer(fact));
  out.fact = std::move(fact);
  return out;
}

/// The strata of a bucket are dealt to its documents in turn, so that each document's questions lie
/// all over its context.
std::vector<double> DraftMaker::depths(int64_t target, int64_t index) const {
  SplitMix64 random(mix(document_seed(options_, target, index) + 3));
  const int64_t strata = options_.documents * options_.questions_per_document;
  std::vector<double> out;
  for (int64_t stratum = index; stratum < strata; stratum += options_.documents) {
    out.push_back((static_cast<double>(stratum) + random.uniform()) / static_cast<double>(strata));
  }
  return out;
}

Draft DraftMaker::draft(int64_t target, int64_t index, int64_t tokens) const {
  return options_.task == "kv_recall" ? draft_list(target, index, tokens)
                                      : draft_text(target, index, tokens);
}

std::vector<PricedFact> DraftMaker::facts_of_like_cost(FactMaker& maker, int64_t target) const {
  constexpr int kAttempts = 3000;
  std::vector<PricedFact> out;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    PricedFact drawn = price(maker.next());
    if (!out.empty() &&
        std::abs(drawn.asking_cost - out.front().asking_cost) > half_spread(target)) {
      continue;
    }
    out.push_back(std::move(drawn));
    if (static_cast<int64_t>(out.size()) == options_.questions_per_document) return out;
  }
  refuse_documents(options_, target, "too few keys of equal length in tokens");
}

/// Facts on lines of their own among running text.
Draft DraftMaker::draft_text(int64_t target, int64_t index, int64_t tokens) const {
  const uint64_t seed = document_seed(options_, target, index);
  FactMaker maker(options_.task, options_.form, mix(seed + 1));
  SplitMix64 random(mix(seed + 2));
  Draft out;
  out.asked = facts_of_like_cost(maker, target);
  int64_t asking = 0, room = tokens;
  for (const PricedFact& fact : out.asked) {
    asking = std::max(asking, fact.asking_cost);
    room -= fact.line_cost;
  }
  room -= asking;
  if (room < FillerMaker::kLeastTokens)
    refuse_documents(options_, target, "the facts leave no room for other text");

  const std::vector<double> places = depths(target, index);  // ascending
  int64_t written = 0;
  size_t next = 0;
  for (const Line& line : filler_.lines(room, random)) {
    for (; next < places.size() && places[next] * static_cast<double>(room) <=
                                       static_cast<double>(written + line.tokens / 2);
         ++next) {
      out.body += out.asked[next].fact.line();
    }
    out.body += line.text;
    written += line.tokens;
  }
  for (; next < places.size(); ++next) out.body += out.asked[next].fact.line();
  return out;
}

/// The lines to ask for: at each depth the nearest one whose question costs what most cost.
std::vector<PricedFact> DraftMaker::choose_lines(const std::vector<PricedFact>& lines,
                                                 const std::vector<double>& depths,
                                                 int64_t target) const {
  std::map<int64_t, int64_t> count;
  for (const PricedFact& line : lines) ++count[line.asking_cost];
  const int64_t usual =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  std::vector<bool> is_taken(lines.size());
  const auto is_usable = [&](int64_t i) {
    return i >= 0 && i < static_cast<int64_t>(lines.size()) && !is_taken[static_cast<size_t>(i)] &&
           std::abs(lines[static_cast<size_t>(i)].asking_cost - usual) <= half_spread(target);
  };
  std::vector<PricedFact> out;
  for (const double depth : depths) {
    const auto wanted = static_cast<int64_t>(depth * static_cast<double>(lines.size()));
    int64_t distance = 0;
    while (!is_usable(wanted - distance) && !is_usable(wanted + distance)) {
      if (++distance > static_cast<int64_t>(lines.size()))
        refuse_documents(options_, target, "too few lines");
    }
    const int64_t found = is_usable(wanted + distance) ? wanted + distance : wanted - distance;
    is_taken[static_cast<size_t>(found)] = true;
    out.push_back(lines[static_cast<size_t>(found)]);
  }
  return out;
}

/// Lines of keys and values; what is left of the length is running text before them.
Draft DraftMaker::draft_list(int64_t target, int64_t index, int64_t tokens) const {
  const uint64_t seed = document_seed(options_, target, index);
  FactMaker maker(options_.task, options_.form, mix(seed + 1));
  SplitMix64 random(mix(seed + 2));
  const std::string heading = "List of keys and their values:\n";
  std::vector<PricedFact> lines = {price(maker.next())};
  int64_t room = tokens - cost(heading) - lines[0].asking_cost - lines[0].line_cost;
  while (room > 0) {
    lines.push_back(price(maker.next()));
    room -= lines.back().line_cost;
  }
  while (room != 0 && room < FillerMaker::kLeastTokens && !lines.empty()) {
    room += lines.back().line_cost;
    lines.pop_back();
  }
  if (static_cast<int64_t>(lines.size()) < options_.questions_per_document) {
    refuse_documents(options_, target, "fewer lines fit than are asked for");
  }
  Draft out;
  for (const Line& line : filler_.lines(room, random)) out.body += line.text;
  out.body += heading;
  for (const PricedFact& line : lines) out.body += line.fact.line();
  out.asked = choose_lines(lines, depths(target, index), target);
  return out;
}

}  // namespace kv
