#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "evaluate/filler.h"
#include "evaluate/task.h"
#include "stats/splitmix64.h"

namespace kv {

/// A line (or a few that stay together) that must stand in a context. `asked` is the number of the
/// question that rests on it.
struct NeedleLine {
  static constexpr size_t kNobody = std::numeric_limits<size_t>::max();
  double depth = 0;  // in [0, 1)
  std::string text;
  size_t asked = kNobody;
  int64_t cost = 0;  // of the text, in tokens
};

/// What the question and room for its answer cost: for an answer that is forced its tokens, for one
/// that is written freely half as much again and `spare` tokens.
int64_t asking_cost(const DraftRequest& request, const FillerMaker& filler, const AskedText& asked,
                    int64_t spare = 8);

/// Prices questions with free answers: all of them get what the dearest one needs.
void give_equal_room(const DraftRequest& request, const FillerMaker& filler,
                     std::vector<AskedText>& asked, int64_t spare = 8);

/// Asks for all of `values`, each of which counts its share: as many guessed ones out of `supply`
/// have as many chances.
AskedText asked_for_all(std::string question, std::vector<std::string> values, double supply);

/// Tokens left for other text beside these.
int64_t room_beside(const DraftRequest& request, const std::vector<AskedText>& asked,
                    const std::vector<NeedleLine>& needles);

/// Needles at their depths among `lines`, which cost `room` together. Needles of one depth keep
/// their order.
Draft weave(std::vector<Line> lines, int64_t room, std::vector<AskedText> asked,
            std::vector<NeedleLine> needles);

/// The same among the filler's text. Throws UnsupportedError when there is no room for any.
Draft weave_into_text(const DraftRequest& request, const FillerMaker& filler,
                      std::vector<AskedText> asked, std::vector<NeedleLine> needles,
                      SplitMix64& random);

/// `count` depths, ascending: the first one given, the others anywhere behind it.
std::vector<double> depths_from(double first, size_t count, SplitMix64& random);

}  // namespace kv
