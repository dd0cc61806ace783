#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/scale_table.h"
#include "engine/arm.h"
#include "model/stored_values.h"

namespace kv {

/// What a server may be doing with its cache, as kvscale's own engine does it.
struct Hypothesis {
  std::string name;  // "one scale per tensor, truncated"
  ArmSpec arm;
  StoredValues values = StoredValues::kOfFormat;
  std::optional<ScaleTable> scales;
};

/// The static scales that a server ought to have, as far as they are known.
struct ExpectedScales {
  std::optional<ScaleTable> tensor, head;
  bool is_collapsed = false;  // `tensor` is the largest of each layer's heads
};

/// The hypotheses that are told apart:
///
///   scale 1.0, one scale per tensor, per head, and per token and head; E5M2 with scale 1.0
///   scales gone wrong: K's and V's swapped, exchanged with the neighbouring layer's, or missing,
///   in
///     all layers, the first or second half, the even or odd ones; the halves of the layers
///     exchanged, the layers reversed or one late, the reciprocal, the first head's for all heads
///
/// each rounded to nearest and truncated, and those of the first line with static scales also with
/// queries and probabilities in FP8. Hypotheses whose numbers are the same are one, under both
/// names.
std::vector<Hypothesis> fingerprint_hypotheses(const ExpectedScales& expected);

}  // namespace kv
