#include "decide/pairs.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <tuple>

#include "kvscale/error.h"

namespace kv {
namespace {

int64_t leading_number(std::string_view label) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), number);
  return error == std::errc() ? number : INT64_MAX;  // "over 2048" comes last
}

bool example_before(const ExampleRecord* a, const ExampleRecord* b) {
  if (a->bucket != b->bucket) return bucket_before(a->bucket, b->bucket);
  return std::tie(a->document, a->example_id) < std::tie(b->document, b->example_id);
}

bool is_same_example(const ExampleRecord& a, const ExampleRecord& b) {
  return a.example_id == b.example_id && a.document == b.document && a.bucket == b.bucket;
}

void check_record(const ExampleRecord& record) {
  for (const auto& [field, value] :
       {std::pair("score", record.score), std::pair("chance", record.chance)}) {
    if (value >= 0 && value <= 1) continue;
    throw ValueError(
        fmt::format("record {}: {}: expected 0 to 1, found {}", record.record_id, field, value));
  }
}

[[noreturn]] void unpaired(const ExampleRecord& found, const std::string& block,
                           const std::string& present, const std::string& absent) {
  throw ValueError(
      fmt::format("block {}: arms {} and {} must be run on the same examples: {} (bucket {}, "
                  "document {}) has only {}",
                  block, present, absent, found.example_id, found.bucket, found.document, present));
}

void add_pair(PairedBucket& out, const ExampleRecord& reference, const ExampleRecord& candidate) {
  out.reference.push_back(reference.score);
  out.candidate.push_back(candidate.score);
  out.reference_valid.push_back(reference.valid ? 1 : 0);
  out.candidate_valid.push_back(candidate.valid ? 1 : 0);
  out.chance.push_back(reference.chance);
  out.half.push_back(reference.half);
  out.mean_prompt_tokens += static_cast<double>(reference.prompt_tokens);
}

/// Numbers the documents of one bucket's records, which are sorted by document.
void add_documents(PairedBucket& out, std::span<const ExampleRecord* const> records) {
  int64_t questions = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const bool is_new = i == 0 || records[i]->document != records[i - 1]->document;
    out.documents += is_new;
    questions = is_new ? 1 : questions + 1;
    out.max_questions = std::max(out.max_questions, questions);
    out.document.push_back(out.documents - 1);
  }
  out.mean_prompt_tokens /= static_cast<double>(records.size());
}

std::vector<const ExampleRecord*> in_bucket(const std::vector<const ExampleRecord*>& records,
                                            const std::string& bucket, int64_t look) {
  std::vector<const ExampleRecord*> out;
  std::ranges::copy_if(records, std::back_inserter(out), [&](const ExampleRecord* r) {
    return r->bucket == bucket && r->look <= look;
  });
  return out;
}

}  // namespace

bool bucket_before(std::string_view a, std::string_view b) {
  const int64_t number_a = leading_number(a), number_b = leading_number(b);
  return number_a != number_b ? number_a < number_b : a < b;
}

ExampleIndex::ExampleIndex(const Records& records) {
  for (const ExampleRecord& record : records.examples) {
    check_record(record);
    arms_[{record.block, record.arm}].push_back(&record);
  }
  for (auto& [key, list] : arms_) {
    std::ranges::sort(list, example_before);
    const auto twice = std::ranges::adjacent_find(
        list, [](const auto* a, const auto* b) { return is_same_example(*a, *b); });
    if (twice == list.end()) continue;
    throw ValueError(fmt::format("block {}: arm {}: example {} is recorded twice", key.first,
                                 key.second, (*twice)->example_id));
  }
}

const std::vector<const ExampleRecord*>& ExampleIndex::of(const std::string& block,
                                                          const std::string& arm) const {
  static const std::vector<const ExampleRecord*> kNone;
  const auto found = arms_.find({block, arm});
  return found == arms_.end() ? kNone : found->second;
}

std::vector<std::string> ExampleIndex::buckets(const std::string& block,
                                               const std::string& arm) const {
  std::vector<std::string> out;
  for (const ExampleRecord* record : of(block, arm)) {
    if (out.empty() || out.back() != record->bucket) out.push_back(record->bucket);
  }
  return out;
}

std::vector<PairedBucket> ExampleIndex::pairs(const std::string& block,
                                              const std::string& reference, const std::string& arm,
                                              const std::vector<std::string>& buckets,
                                              int64_t look) const {
  std::vector<PairedBucket> out;
  for (const std::string& bucket : buckets) {
    const auto references = in_bucket(of(block, reference), bucket, look);
    const auto candidates = in_bucket(of(block, arm), bucket, look);
    if (references.empty() && candidates.empty()) {
      throw ValueError(fmt::format("block {}: bucket {}: no examples of {} and {}", block, bucket,
                                   reference, arm));
    }
    PairedBucket pair;
    pair.bucket = bucket;
    for (size_t i = 0; i < std::max(references.size(), candidates.size()); ++i) {
      const bool has_reference = i < references.size(), has_candidate = i < candidates.size();
      if (!has_candidate || (has_reference && example_before(references[i], candidates[i]))) {
        unpaired(*references[i], block, reference, arm);
      }
      if (!has_reference || example_before(candidates[i], references[i])) {
        unpaired(*candidates[i], block, arm, reference);
      }
      add_pair(pair, *references[i], *candidates[i]);
    }
    add_documents(pair, references);
    out.push_back(std::move(pair));
  }
  return out;
}

PairedSummary summarize_scores(const PairedBucket& bucket) {
  return summarize_pairs(bucket.reference, bucket.candidate, bucket.document);
}

PairedSummary summarize_validity(const PairedBucket& bucket) {
  return summarize_pairs(bucket.reference_valid, bucket.candidate_valid, bucket.document);
}

}  // namespace kv
