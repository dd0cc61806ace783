#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/export_record.h"
#include "targets/dry_run.h"

namespace kv {

/// Whether declared scales are what an engine ends up with.
struct Verification {
  std::vector<ExportedScale> declared;
  DryRun observed;
  std::vector<ScaleWarning> findings;
  size_t compared = 0;  // numbers held against each other: of every layer, side, rank and head
  std::string verdict;  // "proven", "not_provable", "contradicted"
};

/// Compares, bit for bit, what was declared with what the engine's rules make of the directory: per
/// layer, side, rank and head. Layers that the record keeps in 16 bit are not compared. A finding
/// that breaks the scales contradicts; an engine of which nothing is known, or nothing declared,
/// proves nothing.
Verification verify(const ScaleSet& set, const std::vector<ExportedScale>& declared,
                    const DryRunRequest& request);

}  // namespace kv
