#include "bench/operating_characteristics.h"

#include <fmt/core.h>

#include <cmath>

#include "decide/look_plan.h"
#include "decide/quality.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

double uniform(SplitMix64& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }

/// Every answer of one bucket; a look takes the first documents of it.
PairedBucket simulate_bucket(const DecideOptions& options, const std::string& label, double loss,
                             double gain, double share_luck, bool use_halves, SplitMix64& random) {
  PairedBucket out;
  out.bucket = label;
  out.mean_prompt_tokens = std::stod(label);
  out.max_questions = options.questions_per_document;
  for (int64_t d = 0; d < options.documents; ++d) {
    const double documents_luck = uniform(random);
    for (int64_t q = 0; q < options.questions_per_document; ++q) {
      const bool shares = uniform(random) < share_luck;
      const double own_luck = uniform(random);
      const double luck = shares ? documents_luck : own_luck;
      out.reference.push_back(luck < loss ? 1 : luck < loss + gain ? 0 : 1);
      out.candidate.push_back(luck < loss ? 0 : 1);
      out.document.push_back(d);
      if (use_halves) out.half.push_back(1 + d % 2);
    }
  }
  out.chance.assign(out.reference.size(), 0);
  out.reference_valid = out.candidate_valid = std::vector<double>(out.reference.size(), 1);
  return out;
}

PairedBucket first_documents(const PairedBucket& all, int64_t documents) {
  PairedBucket out = all;
  const auto n = static_cast<size_t>(documents * all.max_questions);
  for (auto* list :
       {&out.reference, &out.candidate, &out.reference_valid, &out.candidate_valid, &out.chance}) {
    list->resize(n);
  }
  out.document.resize(n);
  if (!out.half.empty()) out.half.resize(n);
  out.documents = documents;
  return out;
}

void simulate_once(const DecideOptions& options, const std::vector<PairedBucket>& all,
                   Characteristics& out) {
  for (const Look& look : plan_looks(options.looks, options.alpha_accept, options.alpha_shift)) {
    const int64_t documents = documents_at(options.looks, look.number, options.documents);
    std::vector<PairedBucket> seen;
    for (const PairedBucket& bucket : all) seen.push_back(first_documents(bucket, documents));
    const ArmTable table = compare(options, {"E1", "arm", "bf16"}, seen, look, 0).table;
    if (table.is_open() && !look.is_last()) continue;
    (table.is_pass ? out.keeps : table.is_open() ? out.opens : out.shifts) += 1;
    out.questions += static_cast<double>(documents * options.questions_per_document);
    return;
  }
}

}  // namespace

Characteristics simulate(const DecideOptions& options, const Truth& truth, double correlation,
                         bool use_halves, int64_t simulations, uint64_t seed) {
  SplitMix64 random(seed);
  Characteristics out;
  for (; out.simulations < simulations; ++out.simulations) {
    std::vector<PairedBucket> all;
    for (size_t b = 0; b < truth.losses.size(); ++b) {
      all.push_back(simulate_bucket(options, fmt::format("{}", 512 << b), truth.losses[b],
                                    truth.gains[b], std::sqrt(correlation), use_halves, random));
    }
    simulate_once(options, all, out);
  }
  out.questions /= static_cast<double>(simulations);
  return out;
}

std::vector<Truth> published_truths() {
  const auto everywhere = [](const char* name, double loss, double gain) {
    return Truth{name, std::vector<double>(4, loss), std::vector<double>(4, gain)};
  };
  return {everywhere("no flips at all", 0, 0),
          everywhere("1/1 everywhere", 0.01, 0.01),
          everywhere("2/2 everywhere", 0.02, 0.02),
          everywhere("5/5 everywhere", 0.05, 0.05),
          everywhere("2/1 everywhere", 0.02, 0.01),
          everywhere("3/1 everywhere", 0.03, 0.01),
          {"last bucket 3/1, rest 1/1", {0.01, 0.01, 0.01, 0.03}, {0.01, 0.01, 0.01, 0.01}},
          {"last bucket 6/1, rest 1/1", {0.01, 0.01, 0.01, 0.06}, {0.01, 0.01, 0.01, 0.01}},
          {"-0, -0.5, -1.5, -3 points", {0.01, 0.015, 0.025, 0.04}, {0.01, 0.01, 0.01, 0.01}}};
}

}  // namespace kv
