#include "tests/decide/simulated_study.h"

#include <gtest/gtest.h>

#include <set>

#include "decide/look_plan.h"
#include "stats/splitmix64.h"

namespace kv::test {
namespace {

uint64_t hash(const std::string& text) {
  uint64_t out = 0xcbf29ce484222325;
  for (const char c : text) out = (out ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return out;
}

ArmSpec spec_of(const std::string& arm) {
  return arm == kControlRepeat ? ArmSpec{} : ArmSpec::parse(arm);
}

}  // namespace

double SimulatedStudy::draw(const std::string& what, const std::string& block,
                            const std::string& bucket, int64_t document, int64_t question) const {
  SplitMix64 rng((world_.seed * 0x9E3779B97F4A7C15) ^ hash(what) ^ (hash(block) * 3) ^
                 (hash(bucket) * 5) ^ (static_cast<uint64_t>(document) << 32) ^
                 static_cast<uint64_t>(question + 1));
  rng.next();
  return static_cast<double>(rng.next() >> 11) * 0x1p-53;
}

double SimulatedStudy::score(const std::string& arm, const std::string& block,
                             const std::string& bucket, int64_t document, int64_t question) const {
  // A question either shares its document's luck or has its own: intra-cluster correlation.
  const bool shared = draw("shared", block, bucket, document, question) < world_.same_draw;
  const int64_t own = shared ? -1 : question;
  const bool control = draw("control", block, bucket, document, own) < world_.control;
  if (arm == kControlArm) return control ? 1 : 0;
  const Rates rates = arm == kControlRepeat ? world_.repeat : world_.rates(spec_of(arm), bucket);
  // Rates are shares of all questions.
  const double luck = draw(arm, block, bucket, document, own);
  const bool flips =
      control ? luck < rates.loss / world_.control : luck < rates.gain / (1 - world_.control);
  if (world_.fractions && flips) return 0.5;
  return control != flips ? 1 : 0;
}

void SimulatedStudy::add_examples(const Ask& ask, const std::string& arm) {
  std::set<std::string> known;
  for (const ExampleRecord& one : records_.examples) {
    if (one.block == ask.block && one.arm == arm) known.insert(one.example_id);
  }
  const auto& buckets = ask.buckets.empty() ? world_.buckets : ask.buckets;
  const bool is_repeat = ask.kind == AskKind::kControlTwice;
  const int64_t documents = documents_of(is_repeat ? ask.documents : options_.documents);
  const int64_t questions = world_.questions > 0 ? world_.questions : ask.questions_per_document;
  for (const std::string& bucket : buckets) {
    for (int64_t d = 0; d < documents; ++d) {
      const int64_t look = is_repeat ? 1 : look_of(options_.looks, d, documents);
      if (look > ask.look) break;
      for (int64_t q = 0; q < questions; ++q) {
        ExampleRecord record;
        record.block = ask.block;
        record.arm = arm;
        record.bucket = bucket;
        record.document = ask.block + "/" + bucket + "/d" + std::to_string(d);
        record.example_id = record.document + "/q" + std::to_string(q);
        record.record_id = arm + "/" + record.example_id;
        if (known.contains(record.example_id)) continue;
        record.look = look;
        record.half = 1 + d % 2;
        record.task = "kv_recall";
        record.prompt_tokens = std::stoll(bucket);
        record.score = score(arm, ask.block, bucket, d, q);
        record.chance = world_.chance;
        record.kernel = "simulated";
        records_.examples.push_back(record);
      }
    }
  }
  if (arm != kControlRepeat && world_.is_faulty(spec_of(arm))) {
    LogitRecord fault;
    fault.record_id = "logit/" + ask.block + "/" + arm;
    fault.block = ask.block;
    fault.arm = arm;
    fault.n = 10;
    fault.non_finite = 3;
    records_.logits.push_back(fault);
  }
}

void SimulatedStudy::add_ranges(const std::string& arm) {
  for (int64_t layer = 0; layer < world_.num_layers; ++layer) {
    for (const char* side : {"k", "v"}) {
      const ArmSpec spec = ArmSpec::parse(arm);
      RangeRecord record;
      record.layer = layer;
      record.side = side;
      record.layout = name(spec.layout);
      record.record_id = "range/" + std::to_string(layer) + "/" + side + "/" + record.layout;
      record.noise_mean = record.side == "k" ? 0.1 : 0.03;
      record.noise_heads = {0.1, 0.1};
      record.sqnr_db = 31.5;
      record.centred_sqnr_db = 27;
      record.sqnr_db_heads = std::vector<double>(static_cast<size_t>(world_.num_kv_heads), 31.5);
      record.clip_frac_heads = std::vector<double>(static_cast<size_t>(world_.num_kv_heads), 0);
      record.tokens = 1000;
      record.queries = 50;
      world_.ranges(spec, record);
      records_.ranges.push_back(record);
    }
  }
}

void SimulatedStudy::add_capacity(const std::string& arm) {
  const Evidence facts = evidence();
  const int64_t tokens = std::stoll(world_.buckets.back());
  CapacityRecord record;
  record.record_id = "capacity/" + arm;
  record.arm = arm;
  record.tokens = tokens;
  record.bf16_bytes =
      cache_bytes(facts.layers, ArmSpec{}.formats(world_.num_layers), tokens).total_bytes();
  record.arm_bytes =
      cache_bytes(facts.layers, ArmSpec::parse(arm).formats(world_.num_layers), tokens)
          .total_bytes();
  record.allocated_bytes = record.planned_bytes = record.arm_bytes;
  world_.capacity(record);
  records_.capacities.push_back(record);
}

void SimulatedStudy::answer(const Ask& ask) {
  for (const std::string& arm : ask.arms) {
    switch (ask.kind) {
      case AskKind::kSupport: {
        const std::string layout(name(ArmSpec::parse(arm).layout));
        const bool runs = world_.supported(layout);
        records_.supports.push_back(
            {"support/" + layout, layout, options_.target, runs, runs ? "" : "no FP8 kernel"});
        break;
      }
      case AskKind::kControlTwice:
      case AskKind::kQuality:
        add_examples(ask, arm);
        break;
      case AskKind::kRanges:
        add_ranges(arm);
        break;
      case AskKind::kKld:
        records_.arms.push_back(
            {"arm/" + arm, arm, 1000, 3, world_.kld(ArmSpec::parse(arm)), 0, 1});
        break;
      case AskKind::kCapacity:
        add_capacity(arm);
        break;
      case AskKind::kCalibration:
        break;
    }
  }
  if (ask.kind == AskKind::kCalibration) {
    records_.calibrations.push_back(
        {"calibration/1", "scales.json", "abc", 100, 100000, world_.calibrated_tokens, {}});
  }
}

Evidence SimulatedStudy::evidence() const {
  const LayerGeometry layer{world_.num_kv_heads, world_.head_dim, 0};
  std::vector<LayerGeometry> layers(static_cast<size_t>(world_.num_layers), layer);
  for (size_t i = 0; i < world_.windows.size(); ++i) layers[i].window = world_.windows[i];
  return {records_, std::move(layers), {}, sizes()};
}

std::vector<BlockSize> SimulatedStudy::sizes() const {
  std::vector<BlockSize> out;
  const int64_t questions =
      world_.questions > 0 ? world_.questions : options_.questions_per_document;
  const auto add = [&](const std::string& block, int64_t look, int64_t documents) {
    for (const std::string& bucket : world_.buckets) {
      out.push_back({block, bucket, look, documents * questions, documents});
    }
  };
  add("AA", 1, documents_of(std::min(options_.documents, options_.aa_documents)));
  for (const char* block : {"E1", "E2", "E3"}) {
    for (int64_t look = 1; look <= std::ssize(options_.looks); ++look) {
      add(block, look, documents_at(options_.looks, look, documents_of(options_.documents)));
    }
  }
  return out;
}

Verdict SimulatedStudy::run(const DecideOptions& options) {
  options_ = options;
  for (int i = 0; i < 80; ++i) {
    Step step = next_step(options, evidence());
    if (auto* verdict = std::get_if<Verdict>(&step)) return *verdict;
    Ask& ask = std::get<Ask>(step);
    if (!asks_.empty() && asks_.back().kind == ask.kind && asks_.back().block == ask.block &&
        asks_.back().arms == ask.arms && asks_.back().look == ask.look) {
      ADD_FAILURE() << "asked twice: " << ask.state << " " << name(ask.kind) << " " << ask.block;
      return {};
    }
    answer(ask);
    asks_.push_back(std::move(ask));
  }
  ADD_FAILURE() << "no verdict after 80 asks";
  return {};
}

}  // namespace kv::test
