#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/scale_table.h"
#include "engine/arm.h"
#include "engine/sampling.h"
#include "model/model.h"

namespace kv {

/// How the work is cut into passes: part of a run's record. By design.md's rule it changes no
/// result but keys_per_split, which changes the order of additions and so measures A/A noise.
struct BatchPlan {
  int64_t block_size = 64;      // tokens per block: as many as the CPU reads at once
  int64_t rows_per_pass = 512;  // tokens of all sequences in one forward pass
  int32_t keys_per_split = 0;   // 0 = as attend() has it
};

/// What an arm really was, from the dispatchers and the allocator.
struct ArmFacts {
  std::string arm;
  ForwardKernels kernels;
  std::string scale_source;
  int64_t allocated_bytes = 0, planned_bytes = 0;
  std::vector<StoreCounts> counts;  // [layers]
};

class Engine;

/// A continuation and why it ended.
struct Generation {
  enum class End { kStopId, kLength, kNonFinite };
  std::vector<int32_t> tokens;  // the stop id not included
  std::vector<double> margins;  // of every choice (Pick::margin), the stop id's too
  int32_t stop_id = -1;
  End end = End::kLength;
};

/// A sequence in one arm's cache. Move-only; must not outlive its engine.
class Sequence {
 public:
  int arm() const { return arm_; }
  int64_t length() const { return table_.seq_len(); }

  /// Another sequence with the same tokens over the same blocks, which are copied on the first
  /// write.
  Sequence fork() const { return {arm_, table_.fork()}; }

 private:
  friend class Engine;
  Sequence(int arm, BlockTable table) : arm_(arm), table_(std::move(table)) {}
  int arm_;
  BlockTable table_;
};

/// New tokens for one sequence, and where logits are wanted.
struct Request {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  int64_t logits_from = -1;  // logits for the tokens from this index on; -1 = none
  AttentionObserver* observer = nullptr;
};

/// The logits after token `token` of request `request`.
struct LogitRow {
  size_t request = 0;
  int64_t token = 0;
  std::span<const float> logits;  // [vocab_size], valid during the call
};

/// Gets rows as they are produced. Rows of one token index of all requests come in one call,
/// requests ascending: a control and its candidates run as requests of one call can be compared
/// without keeping logits.
using LogitSink = std::function<void(std::span<const LogitRow>)>;

/// Runs sequences of several arms over one model, each arm with its own paged cache.
class Engine {
 public:
  explicit Engine(std::shared_ptr<const Model> model, BatchPlan plan = {});

  const Model& model() const { return *model_; }
  const BatchPlan& plan() const { return plan_; }

  /// Allocates a cache of at least `capacity_tokens` tokens, layers with a window for so many
  /// `sequences` at once (forks are sequences too; 0: they keep all tokens). `scales` is needed,
  /// and used, by arms with calibrated static scales; for fp8_scale1 all are 1. Throws ValueError
  /// when they are missing or of another geometry. `values` other than those of the format are
  /// written into the pages of the bf16 arm, to emulate caches of formats that no layout has;
  /// ValueError for another arm. Returns the arm's number.
  int add_arm(const ArmSpec& spec, const std::optional<ScaleTable>& scales, int64_t capacity_tokens,
              int64_t sequences = 0, StoredValues values = StoredValues::kOfFormat);

  int num_arms() const { return static_cast<int>(arms_.size()); }
  const ArmSpec& arm(int arm) const;
  ArmFacts facts(int arm) const;
  int64_t free_tokens(int arm) const;

  Sequence start(int arm);

  /// Feeds all requests in lockstep. Throws ValueError before any work when a sequence would leave
  /// the model's context, is named twice, gets a token outside the vocabulary, or when an arm has
  /// too few blocks for all of its sequences (where they fill windows, when that shows); Error when
  /// a kernel that ran is not the one the arm asked for. After an exception every sequence has the
  /// length that it had before.
  void run(std::span<const Request> requests, const LogitSink& sink = {});

  /// Continuation of several sequences at once, fed with `first` [sequences] (the last prompt token
  /// of each, not yet in the cache). Stops a sequence at a stop id (not included) or after
  /// max_tokens. Greedy unless `sampling` says otherwise: then `streams` [sequences] are their
  /// random numbers, and what a sequence draws hangs on its own logits and stream alone.
  std::vector<Generation> generate(std::span<Sequence*> sequences, std::span<const int32_t> first,
                                   int64_t max_tokens, std::span<const int32_t> stop_ids,
                                   const Sampling& sampling = {},
                                   std::span<const uint64_t> streams = {});

 private:
  struct Arm {
    ArmSpec spec;
    StoredValues values = StoredValues::kOfFormat;
    std::vector<LayerFormat> rounded;  // of a sink, whose pages have 16 bits: where codes would be
    std::vector<LayerFormat> formats;  // as asked for
    std::optional<ScaleTable> scales;
    std::unique_ptr<KvCache> cache;
    ForwardKernels kernels;
    std::vector<StoreCounts> counts;
    int64_t planned_bytes = 0;
  };
  struct Slice;
  class Room;

  void check(std::span<const Request> requests) const;
  void expect_room(std::span<const Request> requests) const;
  void run_pass(std::span<const Request> requests, std::span<Room> rooms, int64_t first,
                int64_t count, const LogitSink& sink);
  void emit_logits(const HiddenStates& hidden, std::span<const Slice> slices,
                   const LogitSink& sink) const;
  void note_kernels(Arm& arm, const ForwardKernels& kernels) const;

  std::shared_ptr<const Model> model_;
  BatchPlan plan_;
  std::vector<Arm> arms_;
};

/// Index of the largest value; the lowest index wins ties; -1 when any value is not finite.
int32_t argmax(std::span<const float> logits);

}  // namespace kv
