#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/scale_table.h"
#include "calibrate/amax_observer.h"

namespace kv {

/// What scales were computed from: travels with them.
struct CalibrationSource {
  std::string model_sha256;      // of weights and configuration
  std::string tokenizer_sha256;  // empty when the prompts came as ids
  std::string prompts;           // file, generator or text
  std::string prompts_sha256;    // over all token ids
  int64_t examples = 0, tokens = 0, max_tokens = 0;
  std::vector<int32_t> token_ids;  // every id that was fed, once, ascending

  bool operator==(const CalibrationSource&) const = default;
};

/// Calibrated ranges of a model: amax per layer, side and KV head.
struct Calibration {
  CalibrationSource source;
  int64_t num_layers = 0, num_kv_heads = 0;
  std::vector<float> amax;            // [layer][side][head]
  std::vector<std::string> warnings;  // "layer 2 side k head 1: amax 0 (dead), scale 1"

  float at(int64_t layer, Side side, int64_t head) const {
    return amax.at(
        static_cast<size_t>((layer * 2 + static_cast<int64_t>(side)) * num_kv_heads + head));
  }

  /// scale = amax / 448, rounded up to what BF16 holds, so that what is evaluated is what any
  /// engine will hold; amax 0 gives 1. `per_head`: one scale per KV head, else the layer's largest
  /// for all heads.
  ScaleTable scales(bool per_head) const;

  bool operator==(const Calibration&) const = default;
};

/// Reads the observer out. Throws ValueError "layer 2: 0 values observed" when a layer saw no
/// token, and when a value was not finite: no scales are made from such a pass.
Calibration finish_calibration(const AmaxObserver& observer, CalibrationSource source);

/// Writes and reads the scale file (JSON, kvscale's own; docs/formats/scale-file.md). Reading
/// throws FormatError naming file, field, expected and found: another schema, a missing field, an
/// amax that is negative or not finite, scales that are not what their amax gives, a checksum that
/// does not match.
void write_calibration(const std::filesystem::path& path, const Calibration& calibration);
Calibration read_calibration(const std::filesystem::path& path);

/// Throws ValueError naming the field unless the calibration was made from this model: a scale file
/// of another model loads nowhere.
void check_calibration(const Calibration& calibration, const std::string& model_sha256,
                       int64_t num_layers, int64_t num_kv_heads, const std::string& file);

}  // namespace kv
