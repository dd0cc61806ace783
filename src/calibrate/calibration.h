#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/scale_table.h"
#include "calibrate/amax_observer.h"
#include "calibrate/estimator.h"

namespace kv {

/// What scales were computed from: travels with them.
struct CalibrationSource {
  std::string model_sha256;      // of weights and configuration
  std::string tokenizer_sha256;  // empty when the prompts came as ids
  std::string prompts;           // file, generator or text
  std::string prompts_sha256;    // over all token ids
  int64_t examples = 0, tokens = 0, max_tokens = 0;
  std::vector<int32_t> token_ids;  // every id that was fed, once, ascending

  // Of the model, as add_model_fields() gives them; a template's hash, or "none".
  std::string config_sha256, rope, chat_template_sha256;
  int64_t head_dim = 0;

  // What ran. Another one than where the scales are used makes nothing wrong, but nobody looked.
  std::string tool_version, attention, machine;

  std::string created_utc;                      // as the caller says: "2026-01-31T12:00:00Z"
  std::map<int64_t, int64_t> length_histogram;  // power of two that a length does not exceed -> n
  // Examples by the language that their author said, and by task; "": nobody said, none.
  std::map<std::string, int64_t> languages, task_mix;
  std::optional<uint64_t> seed;  // of what was generated; prompts alone have none

  bool operator==(const CalibrationSource&) const = default;
};

/// What the cache stored of one example: amax, [layer][side][head].
struct ExampleAmax {
  int64_t tokens = 0;
  std::vector<float> amax;
};

/// Calibrated ranges of a model: amax per layer, side and KV head.
struct Calibration {
  CalibrationSource source;
  Estimator estimator;
  int64_t num_layers = 0, num_kv_heads = 0;
  std::vector<float> amax;       // [layer][side][head]
  std::vector<float> half_amax;  // [layer][side], after the first half of the examples
  // What the scales cover, where amax does not say it: [layer][side][head] and [layer][side]. Empty
  // for the estimators amax and pow2.
  std::vector<float> head_ranges, tensor_ranges;
  std::vector<std::string> warnings;  // "layer 2 side k head 1: amax 0 (dead), scale 1"

  float at(int64_t layer, Side side, int64_t head) const {
    return amax.at(index(layer, side, head));
  }

  /// The largest of a layer's heads.
  float tensor_amax(int64_t layer, Side side) const;

  /// The range of one head, or of the layer's heads together, over 448, rounded up to what BF16
  /// holds (or to a power of two), so that what is evaluated is what any engine will hold; a range
  /// of 0 gives 1. `per_head`: one scale per KV head, else one for all heads of a layer.
  ScaleTable scales(bool per_head) const;

  /// Position of a layer's head in `amax`; of a layer's side in the shorter lists it is
  /// layer * 2 + side.
  size_t index(int64_t layer, Side side, int64_t head) const {
    return static_cast<size_t>((layer * 2 + static_cast<int64_t>(side)) * num_kv_heads + head);
  }

  bool operator==(const Calibration&) const = default;
};

/// Reads the observer out after one example, `id`. Throws ValueError "layer 2: 0 values observed"
/// when a layer saw no token, and when a value was not finite: no scales are made from such a pass.
ExampleAmax read_example(const AmaxObserver& observer, const std::string& id);

/// Scales from examples in the order in which they were fed. `values` are the histograms of all of
/// them, for the estimators that need them. Warns of dead heads, and where amax grew by more than
/// kConvergedGrowth from the first half of the examples to all of them. Throws ValueError without
/// examples or histograms, and for a percentile that lies among zeros.
Calibration finish_calibration(int64_t num_layers, int64_t num_kv_heads,
                               std::span<const ExampleAmax> examples, const Estimator& estimator,
                               const ValueObserver* values, CalibrationSource source);

/// Growth of amax over the second half of the examples, above which it has not converged. (Method
/// 8.3)
inline constexpr double kConvergedGrowth = 0.01;

/// The power of two, at least 16, that a number of tokens does not exceed: the bins of
/// length_histogram.
int64_t length_bin(int64_t tokens);

/// Writes and reads the scale file (JSON, kvscale's own; docs/formats/scale-file.md). The same
/// calibration gives the same bytes. Reading throws FormatError naming file, field, expected and
/// found: another schema, a missing field, an amax that is negative or not finite, a range that its
/// estimator cannot have given, scales that are not what their ranges give, a checksum that does
/// not match.
void write_calibration(const std::filesystem::path& path, const Calibration& calibration);
Calibration read_calibration(const std::filesystem::path& path);

}  // namespace kv
