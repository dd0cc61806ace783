#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evaluate/example.h"

namespace kv {

/// Token sequences are near-duplicates when their sets of 8-token shingles have a Jaccard
/// similarity of at least this. (Method 8.1)
inline constexpr double kNearDuplicate = 0.8;

/// Groups near-duplicates, also through others: out[i] is the least index of i's group. Candidates
/// come from MinHash signatures of 128 hashes in 32 bands (a pair at 0.8 is missed with a chance of
/// 5e-8), each is then compared exactly. A sequence shorter than a shingle is one shingle.
std::vector<size_t> group_near_duplicates(std::span<const std::span<const int32_t>> texts);

/// The Jaccard similarity of two sequences' sets of shingles, exactly.
double shingle_similarity(std::span<const int32_t> a, std::span<const int32_t> b);

/// Gives every prompt the cluster that it counts to: prompts that name the same cluster, and
/// near-duplicates, are one. A cluster is named as its first prompt in the list names it, else by
/// that prompt's id. Returns how many prompts joined another one only by being its near-duplicate.
int64_t assign_clusters(std::vector<Prompt>& prompts);

}  // namespace kv
