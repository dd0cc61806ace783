#pragma once

#include <string>
#include <vector>

#include "targets/targets.h"

namespace kv {

/// A command that serves an exported directory.
struct LaunchLine {
  std::vector<std::string> words;
  std::string text;
  std::vector<std::string> notes;
};

/// The engine's command for `model`, with scales in `form` (as export forms are
/// named) in `folder`. Throws ValueError when the engine cannot say what is asked for (some
/// layers in BF16, for one).
LaunchLine launch_line(const TargetRow& row, const LaunchRequest& request, const std::string& form,
                       const std::string& model, const std::string& folder);

}  // namespace kv
