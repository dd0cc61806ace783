#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kv {

/// What a command may take.
struct CommandLimits {
  std::chrono::milliseconds time{10'000};   // wall clock
  int64_t processors = 8;                   // busy all that time, in each process
  int64_t memory_bytes = int64_t{4} << 30;  // address space of each process
  int64_t file_bytes = int64_t{256} << 20;  // of each file that it writes
};

struct CommandResult {
  enum class End { kExit, kSignal, kTimeOut, kNotRun };
  End end = End::kExit;
  int status = 0;      // exit status or signal
  std::string reason;  // of kTimeOut and kNotRun
};

/// Runs `/bin/sh -c command` with `input` as its standard input (a file, so that it may be read
/// again, in part or not at all); what it prints is dropped. It starts in the folder and with the
/// environment of this process, in a process group of its own, with no descriptors but the standard
/// three. When the command ends or its time is over, what is left of its group is killed; a
/// process that has left the group is stopped by its limit of processor time only.
///
/// kNotRun: the shell did not find the command or may not run it (its exit statuses 127 and 126).
/// Throws IoError when no process can be started.
CommandResult run_command(const std::string& command, std::string_view input,
                          const CommandLimits& limits = {});

}  // namespace kv
