#pragma once

#include <memory>
#include <optional>

namespace CLI {
class App;
}

namespace kv::cli {

/// `bench serve`: servers under load. A subcommand of `bench`.
class ServeBenchCommand {
 public:
  explicit ServeBenchCommand(CLI::App& bench);
  ~ServeBenchCommand();

  /// Runs it if it was named on the command line and returns its exit code; nullopt when not.
  std::optional<int> run() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kv::cli
