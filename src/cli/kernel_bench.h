#pragma once

#include <memory>
#include <optional>

namespace CLI {
class App;
}

namespace kv::cli {

/// The benches of single ops: `bench attention` and `bench append`, subcommands of `bench`.
class KernelBenchCommands {
 public:
  explicit KernelBenchCommands(CLI::App& bench);
  ~KernelBenchCommands();

  /// Runs the one that was named on the command line and returns its exit code; nullopt when it was
  /// none of them.
  std::optional<int> run() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kv::cli
