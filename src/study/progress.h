#pragma once

#include <cstdint>
#include <string_view>

#include "kvscale/error.h"

namespace kv {

/// A person asked to stop. What was recorded stays; the same command resumes.
struct Interrupted : Error {
  using Error::Error;
};

/// Told how far long work is, and asked whether to go on. The CLI prints rate and ETA from it.
class Progress {
 public:
  virtual ~Progress() = default;

  /// `done` of `total` units of a stage ("scan: fp8 arms", "tokens").
  virtual void update(std::string_view stage, int64_t done, int64_t total,
                      std::string_view unit) = 0;

  /// Throws Interrupted when the work shall stop; called between records.
  virtual void check() = 0;
};

/// Says nothing, never stops.
class NoProgress : public Progress {
 public:
  void update(std::string_view, int64_t, int64_t, std::string_view) override {}
  void check() override {}
};

}  // namespace kv
