#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "decide/evidence.h"
#include "decide/options.h"
#include "decide/verdict.h"

namespace kv {

/// What a study must produce next.
///   kSupport       a SupportRecord for each arm's layout on options.target
///   kControlTwice  ExampleRecords of block AA: kControlArm, and kControlRepeat under another batch
///                  plan; LogitRecords of the repeat when they come for free
///   kQuality       ExampleRecords of every arm on the block
///   kCalibration   a CalibrationRecord: static scales from block CAL
///   kRanges        RangeRecords (k and v, every layer) of every arm's layout, from the control on
///   E2 kKld           an ArmRecord of every arm: its KLD from the control over E2 kCapacity      a
///   CapacityRecord of every arm
enum class AskKind { kSupport, kControlTwice, kQuality, kCalibration, kRanges, kKld, kCapacity };

/// "support", "control_twice", "quality", "calibration", "ranges", "kld", "capacity".
std::string_view name(AskKind kind);

struct Ask {
  std::string state;  // "PREFLIGHT", "AA", "SCREEN", "CALIBRATE", "LOCALISE", "TRY", "SYSTEMS"
  AskKind kind = AskKind::kQuality;
  std::string block;                 // "AA", "E1", "E2", "E3", "CAL"; empty where there is none
  std::vector<std::string> arms;     // as ArmSpec::parse reads them, and kControlRepeat
  std::vector<std::string> buckets;  // that are still in; empty = all
  int64_t look = 1;                  // kQuality: the documents of this look and those before it
  // Per bucket, for kQuality and kControlTwice; documents also for kKld.
  int64_t documents = 0, questions_per_document = 0;
  std::string reason;
};

using Step = std::variant<Ask, Verdict>;

/// The next thing to do, computed from the records alone: the same evidence always gives the same
/// step, so a run can be stopped anywhere, continued, and its verdict computed again. A study calls
/// it in a loop, produces what an Ask names (records that exist need not be made again) and stops
/// at a Verdict.
///
/// States and rules: the method's section 6. Timing gates need a timing record of the engine that
/// serves; while there is none the verdict says that only capacity was judged.
///
/// Throws ValueError for options outside their range, a model without layers, and comparisons that
/// are not paired (an arm with other examples than the control on the same block).
Step next_step(const DecideOptions& options, const Evidence& evidence);

}  // namespace kv
