#include "decide/score_pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "kvscale/error.h"

namespace kv {
namespace {

constexpr size_t kNamed = 5;  // ids in a message

struct Pair {
  const StoredScore* control = nullptr;
  const StoredScore* candidate = nullptr;
};

std::vector<std::string> ids_missing_in(const ScoreSet& other, const ScoreSet& set) {
  std::set<std::string> there;
  for (const StoredScore& one : other.scores) there.insert(one.id);
  std::vector<std::string> out;
  for (const StoredScore& one : set.scores) {
    if (!there.contains(one.id)) out.push_back(one.id);
  }
  return out;
}

void expect_none_missing(const ScoreSet& present, const ScoreSet& absent) {
  std::vector<std::string> missing = ids_missing_in(absent, present);
  if (missing.empty()) return;
  const size_t count = missing.size();
  missing.resize(std::min(count, kNamed));
  throw FormatError(fmt::format("{}: expected the examples of {}, found {} of them missing: {}{}",
                                absent.source, present.source, count, fmt::join(missing, ", "),
                                count > kNamed ? ", ..." : ""));
}

void expect_same(const Pair& pair) {
  const StoredScore &a = *pair.control, &b = *pair.candidate;
  const auto refuse = [&](std::string_view what, const std::string& x, const std::string& y) {
    throw FormatError(fmt::format("{}: example \"{}\": expected the {} of {} ({}), found {}",
                                  b.where, b.id, what, a.where, x, y));
  };
  if (a.bucket != b.bucket) refuse("bucket", a.bucket, b.bucket);
  if (a.cluster != b.cluster) refuse("cluster", a.cluster, b.cluster);
  // Answers to different prompts do not pair, whatever their ids say.
  if (!a.prompt_hash.empty() && !b.prompt_hash.empty() && a.prompt_hash != b.prompt_hash) {
    refuse("prompt", a.prompt_hash.substr(0, 16), b.prompt_hash.substr(0, 16));
  }
}

bool pair_before(const Pair& x, const Pair& y) {
  if (x.control->bucket != y.control->bucket) {
    return bucket_before(x.control->bucket, y.control->bucket);
  }
  return std::tie(x.control->cluster, x.control->id) < std::tie(y.control->cluster, y.control->id);
}

void add(PairedBucket& out, const Pair& pair) {
  out.reference.push_back(pair.control->score);
  out.candidate.push_back(pair.candidate->score);
  out.reference_valid.push_back(pair.control->valid ? 1 : 0);
  out.candidate_valid.push_back(pair.candidate->valid ? 1 : 0);
  out.chance.push_back(0);
  if (pair.control->half > 0) out.half.push_back(pair.control->half);
  out.mean_prompt_tokens += pair.control->tokens;
}

/// Numbers the clusters of one bucket, whose pairs stand sorted by cluster.
void number_clusters(PairedBucket& bucket, const std::vector<const Pair*>& pairs) {
  int64_t questions = 0;
  bucket.documents = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const bool is_new = i == 0 || pairs[i]->control->cluster != pairs[i - 1]->control->cluster;
    bucket.documents += is_new;
    questions = is_new ? 1 : questions + 1;
    bucket.max_questions = std::max(bucket.max_questions, questions);
    bucket.document.push_back(bucket.documents - 1);
  }
  if (bucket.documents < 2) {
    throw FormatError(fmt::format("bucket {}: expected at least 2 clusters, found {}",
                                  bucket.bucket, bucket.documents));
  }
}

PairedBucket bucket_of(const std::vector<const Pair*>& pairs, bool has_clusters) {
  PairedBucket out;
  out.bucket = pairs.front()->control->bucket;
  if (pairs.size() < 2) {
    throw FormatError(
        fmt::format("bucket {}: expected at least 2 pairs, found {}", out.bucket, pairs.size()));
  }
  for (const Pair* pair : pairs) add(out, *pair);
  out.mean_prompt_tokens /= static_cast<double>(pairs.size());
  if (out.half.size() != pairs.size()) out.half.clear();
  out.max_questions = 1;
  out.documents = out.n();
  if (has_clusters) number_clusters(out, pairs);
  return out;
}

}  // namespace

std::vector<PairedBucket> pair_scores(const ScoreSet& control, const ScoreSet& candidate) {
  expect_none_missing(control, candidate);
  expect_none_missing(candidate, control);
  std::unordered_map<std::string, const StoredScore*> by_id;
  for (const StoredScore& one : candidate.scores) by_id.emplace(one.id, &one);
  std::vector<Pair> pairs;
  for (const StoredScore& one : control.scores) {
    pairs.push_back({&one, by_id.at(one.id)});
    expect_same(pairs.back());
  }
  if (pairs.empty())
    throw FormatError(fmt::format("{}: expected examples, found none", control.source));
  std::ranges::sort(pairs, pair_before);
  std::vector<PairedBucket> out;
  for (size_t begin = 0; begin < pairs.size();) {
    std::vector<const Pair*> bucket;
    const std::string& label = pairs[begin].control->bucket;
    while (begin < pairs.size() && pairs[begin].control->bucket == label) {
      bucket.push_back(&pairs[begin++]);
    }
    out.push_back(bucket_of(bucket, control.has_clusters && candidate.has_clusters));
  }
  return out;
}

}  // namespace kv
