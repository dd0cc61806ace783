#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/capacity.h"
#include "evaluate/record_log.h"

namespace kv {

/// How records name the control, and its second run on block "AA" under another batch plan.
inline constexpr std::string_view kControlArm = "bf16";
inline constexpr std::string_view kControlRepeat = "bf16#2";

/// Something checked before any quality run. `rule`, when it does not hold:
///   "BACKEND_FALLBACK", "NUMERIC_FAULT", "NOT_SERVED"   `layout` is out
///   any other: "CONTROL_BROKEN", "PROVENANCE", "NOT_DISJOINT", "LENGTH_MISMATCH",
///   "SCALES_NOT_APPLIED", "ARM_NOT_SERVED"   the run ends
struct PreflightFact {
  std::string rule;
  bool holds = true;
  std::string layout;  // of a rule that is about one
  std::string record;  // id, where there is one
  std::string text;    // what was expected and found
};

/// How many examples a bucket of a block has by a look. Until an arm has so many records there, the
/// look counts as unfinished and is asked for again.
struct BlockSize {
  std::string block, bucket;
  int64_t look = 1;
  int64_t examples = 0, documents = 0;  // of this look and those before it
};

/// All that a decision rests on. The records stay where they are and must outlive it.
///
///   examples      blocks "AA" (arms kControlArm, kControlRepeat), "E1", "E2", "E3"
///   generations   any block: where arms leave the control's way; shown, they decide nothing
///   logits        any: non-finite logits put an arm's layout out; block "AA" gives the KLD floor
///   ranges        of the control over block E2
///   arms          KLD over block E2 of arms that keep some layers in BF16
///   calibrations  the last one counts
///   timings       of the engine that serves: without any, speed is not judged
///   amaxes        of block CAL, and of the contexts of E1 and E2: whether the first are like these
struct Evidence {
  const Records& records;
  std::vector<LayerGeometry> layers;  // of the model, all of them
  std::vector<PreflightFact> facts;
  std::vector<BlockSize> sizes;  // empty: a look is finished as soon as its arms have records
};

}  // namespace kv
