#pragma once

#include <string>
#include <vector>

#include "checkpoint/scales/export_record.h"
#include "checkpoint/scales/scale_set.h"

namespace kv {

/// How the scales of a source become those that are written.
struct ScaleChoice {
  bool per_head = false;    // one per KV head; else one per tensor
  bool reduce_max = false;  // a per-tensor scale may be made of several: their maximum
  bool is_shared = false;   // one number for K and V: the larger one, which never overflows
  float min_scale = 0;      // lifts smaller ones
  bool exact = false;       // no rounding up to what BF16 holds
};

/// The scales of every layer that owns a cache, raw and as they will be written. Rounding up to
/// BF16 gives every engine the same number, whatever dtype it keeps scales in. Throws ValueError
/// naming layer, side and value for one that is missing, not finite, not above 0 or above 1e4, or
/// of another granularity than asked for, and when the source has means or zero points.
std::vector<ExportedScale> scales_for_export(const ScaleSet& set, const ScaleChoice& choice);

/// "post_rope", "pre_rope" or "unknown": where K was measured.
std::string k_stage_of(const ScaleSet& set);

}  // namespace kv
