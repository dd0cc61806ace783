#pragma once

#include "checkpoint/scales/export_record.h"
#include "cli/scale_args.h"
#include "targets/launch_line.h"
#include "targets/verify.h"

namespace kv::cli {

/// A directory that was written and read back.
struct Exported {
  ExportRecord record;
  LaunchLine launch;
  Verification check;  // of what was written, by the target's rules

  /// A directory that contradicts what was asked for would not serve it, and is removed again.
  bool is_kept() const { return check.verdict != "contradicted"; }
};

/// What `kvscale export` does before it prints. Throws the error that names what cannot be written
/// or what the target does not run; then no directory is left behind, unless one was there before.
Exported export_verified(const ExportArgs& args);

/// How the target serves a directory with this record.
LaunchLine launch_of(const ExportArgs& args, const ExportRecord& record);

}  // namespace kv::cli
