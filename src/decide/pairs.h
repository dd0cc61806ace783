#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evaluate/record_log.h"
#include "stats/paired.h"

namespace kv {

/// Two arms on the examples of one bucket, in the order of document and example id.
struct PairedBucket {
  std::string bucket;
  std::vector<double> reference, candidate;              // scores
  std::vector<double> reference_valid, candidate_valid;  // 0 or 1
  std::vector<double> chance;
  std::vector<int64_t> document;  // cluster ids
  std::vector<int64_t> half;      // replicate half of each, 1 or 2; empty: not dealt into halves
  int64_t documents = 0, max_questions = 0;
  double mean_prompt_tokens = 0;

  int64_t n() const { return static_cast<int64_t>(reference.size()); }
};

/// Whether bucket a comes before b: by the number at the front of the label, then by the label.
bool bucket_before(std::string_view a, std::string_view b);

/// The example records of a run by block and arm. Keeps pointers: the records must outlive it.
class ExampleIndex {
 public:
  /// Throws ValueError: an example recorded twice for one block and arm, a score or chance outside
  /// [0, 1].
  explicit ExampleIndex(const Records& records);

  /// Sorted by bucket, document and example id; empty if there are none.
  const std::vector<const ExampleRecord*>& of(const std::string& block,
                                              const std::string& arm) const;

  /// Buckets of a block and arm, in order.
  std::vector<std::string> buckets(const std::string& block, const std::string& arm) const;

  /// The pairs of two arms in the named buckets, as far as `look` goes. Throws ValueError when they
  /// were not run on the same examples, or a bucket has none.
  std::vector<PairedBucket> pairs(const std::string& block, const std::string& reference,
                                  const std::string& arm, const std::vector<std::string>& buckets,
                                  int64_t look = 1) const;

 private:
  std::map<std::pair<std::string, std::string>, std::vector<const ExampleRecord*>> arms_;
};

/// Scores, and validity, of one bucket; documents are the clusters. At least 2 documents.
PairedSummary summarize_scores(const PairedBucket& bucket);
PairedSummary summarize_validity(const PairedBucket& bucket);

}  // namespace kv
