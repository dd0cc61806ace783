#pragma once

#include <string>

#include "decide/compare_scores.h"
#include "report/text_style.h"

namespace kv {

/// Two arms on the same examples, on a terminal: per bucket and overall the arms' means with their
/// intervals, the paired difference, losses and gains, p-values and what they show; ends with a
/// newline.
std::string scores_text(const ScoreComparison& comparison, const ScoreSet& control,
                        const ScoreSet& candidate, const TextStyle& style);

/// The same as one JSON object. Keys: kind, accepts (always false), control, candidate (source,
/// arm, metric, block), margin, sentence, table (as in decision.json), means[], recovery, auc,
/// repeat.
std::string scores_json(const ScoreComparison& comparison, const ScoreSet& control,
                        const ScoreSet& candidate);

}  // namespace kv
