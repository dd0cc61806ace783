#include "evaluate/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "evaluate/question_cut.h"
#include "kvscale/error.h"

namespace kv {

std::string Draft::body() const {
  std::string out;
  for (const Line& line : lines) out += line.text;
  return out;
}

uint64_t DraftRequest::seed(uint64_t purpose) const {
  return mix(document_seed(options, target, index) + purpose);
}

void DraftRequest::refuse(std::string_view why) const {
  throw UnsupportedError(fmt::format("generator {}: {} tokens, {} questions a document: {}",
                                     options.task, target, options.questions_per_document, why));
}

AskedText asked_for_all(std::string question, std::vector<std::string> values, double supply) {
  AskedText out;
  out.question = std::move(question);
  out.answer = fmt::format(" {}", fmt::join(values, ", "));
  out.check = Check::kShare;
  out.chance = static_cast<double>(values.size()) / supply;
  out.accepted = std::move(values);
  return out;
}

int64_t asking_cost(const DraftRequest& request, const FillerMaker& filler, const AskedText& asked,
                    int64_t spare) {
  const int64_t answer = filler.cost(request.cut.answer(asked.answer));
  const int64_t room = asked.is_forced() ? answer : answer + answer / 2 + spare;
  return filler.cost(request.cut.question(asked.question)) + room;
}

void give_equal_room(const DraftRequest& request, const FillerMaker& filler,
                     std::vector<AskedText>& asked, int64_t spare) {
  int64_t most = 0;
  for (const AskedText& one : asked) {
    most = std::max(most, asking_cost(request, filler, one, spare));
  }
  for (AskedText& one : asked) one.cost = most;
}

int64_t room_beside(const DraftRequest& request, const std::vector<AskedText>& asked,
                    const std::vector<NeedleLine>& needles) {
  int64_t asking = 0, room = request.tokens;
  for (const AskedText& one : asked) asking = std::max(asking, one.cost);
  for (const NeedleLine& needle : needles) room -= needle.cost;
  return room - asking;
}

Draft weave(std::vector<Line> lines, int64_t room, std::vector<AskedText> asked,
            std::vector<NeedleLine> needles) {
  std::stable_sort(needles.begin(), needles.end(),
                   [](const auto& a, const auto& b) { return a.depth < b.depth; });
  Draft out;
  out.asked = std::move(asked);
  int64_t written = 0;
  size_t next = 0;
  const auto place_next = [&] {
    NeedleLine& needle = needles[next++];
    if (needle.asked != NeedleLine::kNobody) {
      out.asked[needle.asked].needles.push_back(out.lines.size());
    }
    out.lines.push_back({std::move(needle.text), needle.cost});
  };
  for (Line& line : lines) {
    const auto here = static_cast<double>(written + line.tokens / 2);
    while (next < needles.size() && needles[next].depth * static_cast<double>(room) <= here) {
      place_next();
    }
    written += line.tokens;
    out.lines.push_back(std::move(line));
  }
  while (next < needles.size()) place_next();
  return out;
}

Draft weave_into_text(const DraftRequest& request, const FillerMaker& filler,
                      std::vector<AskedText> asked, std::vector<NeedleLine> needles,
                      SplitMix64& random) {
  const int64_t room = room_beside(request, asked, needles);
  if (room < FillerMaker::kLeastTokens) {
    request.refuse("what is asked for leaves no room for other text");
  }
  return weave(filler.lines(room, random), room, std::move(asked), std::move(needles));
}

std::vector<double> depths_from(double first, size_t count, SplitMix64& random) {
  std::vector<double> out = {first};
  while (out.size() < count) out.push_back(first + (1 - first) * random.uniform());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace kv
