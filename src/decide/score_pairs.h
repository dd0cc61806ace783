#pragma once

#include <vector>

#include "decide/pairs.h"
#include "evaluate/score_file.h"

namespace kv {

/// Two arms' stored scores as pairs, bucket by bucket, in the order of bucket, cluster and id.
/// Clusters become documents; without any, every example stands for itself (no document ids), and
/// replicate halves are taken where every example has one.
///
/// Throws FormatError naming the first examples concerned: ids that only one arm has, another
/// bucket or cluster in the two arms, another prompt (both files carry hashes of the prompts, and
/// they differ), a bucket with fewer than 2 pairs.
std::vector<PairedBucket> pair_scores(const ScoreSet& control, const ScoreSet& candidate);

}  // namespace kv
