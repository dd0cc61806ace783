#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace kv {

/// How a server is started.
struct LaunchCommand {
  // A line for /bin/sh in which {model}, {port} and {flags} are replaced: the model's directory, a
  // free port of this machine, the words that choose the arm's cache.
  std::string command;
  std::string model;
  std::vector<std::string> flags;
  std::filesystem::path log;  // what it prints, both streams
  std::string health_route = "/health";
  std::chrono::milliseconds start_time{1'800'000};  // that it may take until it is healthy
  std::chrono::milliseconds stop_time{15'000};      // between SIGTERM and SIGKILL
};

/// The line with its places filled in. Model and flags are quoted for the shell. Throws ValueError
/// when {model} or {port} is not there, or {flags} where there are some.
std::string filled_in(const LaunchCommand& launch, int port);

/// A port of the loopback address that nothing listened to a moment ago.
int free_port();

/// A server in a process group of its own, which ends with this object: SIGTERM, then SIGKILL, to
/// the whole group.
class LaunchedServer {
 public:
  /// Starts it and waits until it is healthy; `check` is called meanwhile and may throw to give up.
  /// Throws, with the end of the log, IoError when it exits before, Error when it takes too long.
  LaunchedServer(const LaunchCommand& launch, const std::function<void()>& check);
  ~LaunchedServer();
  LaunchedServer(const LaunchedServer&) = delete;
  LaunchedServer& operator=(const LaunchedServer&) = delete;

  const std::string& url() const { return url_; }
  pid_t pid() const { return pid_; }

  /// Throws IoError with the end of the log when it has exited.
  void expect_running();

  /// What it has printed so far, at most the first 4 MiB.
  std::string log() const;

 private:
  void wait_until_healthy(const std::function<void()>& check);
  bool has_exited();
  void stop();
  [[noreturn]] void fail(const std::string& what) const;

  LaunchCommand launch_;
  std::string url_, line_;
  pid_t pid_ = -1;
};

}  // namespace kv
