#pragma once

#include <memory>
#include <optional>

namespace CLI {
class App;
}

namespace kv::cli {

/// The commands over stored results: compare, recompute, report.
class ReanalysisCommands {
 public:
  explicit ReanalysisCommands(CLI::App& app);
  ~ReanalysisCommands();

  /// Runs the one that was named on the command line and returns its exit code; nullopt when it was
  /// none of them.
  std::optional<int> run() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kv::cli
