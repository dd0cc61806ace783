// What a decision makes of a loss that only the longest contexts have, on a real run: takes the
// answers of a decide run's block E1, plants losses into the candidate's of the longest bucket, and
// asks the decision machine.
//
//   kv_planted_loss MODEL RUN/records.jsonl [PLANTS]     (default 200 plantings a row; the run may
//   be unfinished)
//
// Prints, as Markdown, how often the candidate is kept, called a loss, or left open at the last
// look. The first rows give the candidate the control's own answers, so that the planted loss is
// the only one.

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "checkpoint/checkpoint.h"
#include "decide/decide.h"
#include "decide/look_plan.h"
#include "evaluate/record_log.h"
#include "model/model.h"
#include "stats/splitmix64.h"

namespace {

using namespace kv;

struct Row {
  std::string name;
  bool has_own_answers = false;  // the candidate's; else the control's
  double points = 0;             // that are planted, of all questions of the longest bucket
};

struct Outcomes {
  int64_t kept = 0, lost = 0, open = 0;
};

const std::string kBlock = "E1";

/// E1's documents that both arms have answered, per bucket in the order of the run; as many of
/// each.
std::map<std::string, std::vector<std::string>> whole_documents(const Records& records,
                                                                const std::string& candidate) {
  std::set<std::string> answered;
  for (const ExampleRecord& r : records.examples) {
    if (r.block == kBlock && r.arm == candidate) answered.insert(r.document);
  }
  std::map<std::string, std::vector<std::string>> out;
  std::set<std::string> seen;
  for (const ExampleRecord& r : records.examples) {
    if (r.block == kBlock && r.arm == kControlArm && answered.contains(r.document) &&
        seen.insert(r.document).second) {
      out[r.bucket].push_back(r.document);
    }
  }
  size_t fewest = SIZE_MAX;
  for (const auto& [bucket, documents] : out) fewest = std::min(fewest, documents.size());
  for (auto& [bucket, documents] : out) documents.resize(fewest);
  return out;
}

/// The candidate of E1.
std::string candidate_of(const Records& records) {
  for (const ExampleRecord& r : records.examples) {
    if (r.block == kBlock && r.arm != kControlArm) return r.arm;
  }
  throw std::runtime_error("expected answers of a candidate on block E1, found none");
}

double uniform(SplitMix64& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }

/// One run to decide about: E1's answers of both arms, with their looks as `options` plan them.
class PlantedRun {
 public:
  PlantedRun(const Records& records, DecideOptions options)
      : records_(records), options_(std::move(options)), candidate_(candidate_of(records)) {
    const auto documents = whole_documents(records, candidate_);
    for (const auto& [bucket, list] : documents) {
      if (longest_.empty() || std::stol(bucket) > std::stol(longest_)) longest_ = bucket;
      for (size_t i = 0; i < list.size(); ++i) index_[list[i]] = static_cast<int64_t>(i);
      options_.documents = std::ssize(list);
      for (int64_t look = 1; look <= std::ssize(options_.looks); ++look) {
        const int64_t by_then = documents_at(options_.looks, look, options_.documents);
        sizes_.push_back(
            {kBlock, bucket, look, by_then * options_.questions_per_document, by_then});
      }
    }
    for (const ExampleRecord& r : records.examples) {
      if (r.block == kBlock && r.arm == kControlArm) control_[r.example_id] = r.score;
    }
  }

  int64_t documents() const { return options_.documents; }
  const std::string& longest() const { return longest_; }
  const std::string& candidate() const { return candidate_; }

  /// The decision's step once it has what it asks of E1.
  Step decide(const Row& row, const std::vector<LayerGeometry>& layers, uint64_t seed) const {
    const Records all = planted(row, seed);
    Records seen = all;
    for (int64_t look = 1;; ++look) {
      seen.examples = up_to(all, look);
      Step step = next_step(options_, Evidence{seen, layers, {}, sizes_});
      const Ask* ask = std::get_if<Ask>(&step);
      if (ask == nullptr || ask->kind != AskKind::kQuality || ask->block != kBlock) return step;
      if (look > std::ssize(options_.looks)) throw std::runtime_error("E1 is asked for again");
    }
  }

 private:
  /// The records with the losses in; each right answer of the control is lost alike.
  Records planted(const Row& row, uint64_t seed) const {
    Records out = records_;
    out.generations.clear();
    double right = 0, all = 0;
    for (const auto& r : records_.examples) {
      if (!is_planted(r)) continue;
      all += 1;
      right += before(row, r);
    }
    const double rate = row.points / 100 * all / right;
    SplitMix64 random(seed);
    for (ExampleRecord& r : out.examples) {
      if (r.block != kBlock || r.arm != candidate_) continue;
      r.score = before(row, r);
      if (is_planted(r) && uniform(random) < rate) r.score = 0;
    }
    return out;
  }
  bool is_planted(const ExampleRecord& r) const {
    return r.block == kBlock && r.arm == candidate_ && r.bucket == longest_ &&
           index_.contains(r.document);
  }
  double before(const Row& row, const ExampleRecord& r) const {
    return row.has_own_answers ? r.score : control_.at(r.example_id);
  }
  std::vector<ExampleRecord> up_to(const Records& all, int64_t look) const {
    std::vector<ExampleRecord> out;
    for (ExampleRecord r : all.examples) {
      if (r.block == kBlock) {
        const auto found = index_.find(r.document);
        if (found == index_.end()) continue;
        r.look = look_of(options_.looks, found->second, options_.documents);
        if (r.look > look) continue;
      }
      out.push_back(std::move(r));
    }
    return out;
  }

  const Records& records_;
  DecideOptions options_;
  std::string candidate_, longest_;
  std::vector<BlockSize> sizes_;
  std::map<std::string, int64_t> index_;   // document -> place in its bucket
  std::map<std::string, double> control_;  // question -> score
};

/// Kept: the machine goes on to what an accepted arm costs. Lost: it goes on to other arms. A
/// verdict here says that the questions did not suffice.
void count(const Step& step, Outcomes& out) {
  if (const Ask* ask = std::get_if<Ask>(&step)) {
    (ask->kind == AskKind::kCapacity ? out.kept : out.lost) += 1;
  } else {
    (std::get<Verdict>(step).outcome == Outcome::kKeepScaleOne ? out.kept : out.open) += 1;
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3 || argc > 4) throw std::runtime_error("expected MODEL RECORDS [PLANTS]");
  const int64_t plants = argc > 3 ? std::atoll(argv[3]) : 200;
  if (plants < 1) throw std::runtime_error("PLANTS: expected a number from 1");
  const auto checkpoint = Checkpoint::open(argv[1]);
  const std::vector<LayerGeometry> layers = layer_geometry(checkpoint->spec());
  const Records records = read_records(argv[2]);
  const PlantedRun run(records, DecideOptions::standard());
  fmt::print("{} documents a bucket, {} against bf16, longest bucket {}, {} plantings a row\n\n",
             run.documents(), run.candidate(), run.longest(), plants);
  fmt::print(
      "| candidate | planted, points | kept | lost | open |\n| --- | --- | --- | --- | --- |\n");
  for (const bool own : {false, true}) {
    for (const double points : {0.0, 1.0, 2.0, 3.0, 5.0}) {
      const Row row{own ? "its own answers" : "the control's answers", own, points};
      Outcomes out;
      const int64_t runs = points == 0 ? 1 : plants;
      for (int64_t i = 0; i < runs; ++i)
        count(run.decide(row, layers, static_cast<uint64_t>(i)), out);
      const auto share = [&](int64_t n) {
        return static_cast<double>(n) / static_cast<double>(runs);
      };
      fmt::print("| {} | {:g} | {:.3f} | {:.3f} | {:.3f} |\n", row.name, points, share(out.kept),
                 share(out.lost), share(out.open));
    }
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
