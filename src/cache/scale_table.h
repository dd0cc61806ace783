#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/layout.h"

namespace kv {

/// Static scales of a model, one per layer, side and KV head (a per-tensor scale is the same number
/// for all heads): what a stored code is multiplied by. Every value is finite and > 0; "absent" is
/// not a number but an absent table.
class ScaleTable {
 public:
  ScaleTable() = default;

  /// All scales 1. `source` says where the table comes from ("scale 1.0 (none supplied)", a file, a
  /// calibration) and travels into every record.
  ScaleTable(int64_t num_layers, int64_t num_kv_heads, std::string source);

  int64_t num_layers() const { return num_layers_; }
  int64_t num_kv_heads() const { return num_kv_heads_; }
  const std::string& source() const { return source_; }

  /// The num_kv_heads scales of one layer and side. Throws ValueError when the layer is not there.
  std::span<const float> heads(int64_t layer, Side side) const;

  /// Throws ValueError naming layer, side, head and value unless it is finite, > 0 and a normal
  /// F32.
  void set(int64_t layer, Side side, int64_t head, float scale);
  void set_all_heads(int64_t layer, Side side, float scale);

 private:
  int64_t index(int64_t layer, Side side, int64_t head) const;

  int64_t num_layers_ = 0, num_kv_heads_ = 0;
  std::string source_;
  std::vector<float> values_;  // [layer][side][head]
};

}  // namespace kv
