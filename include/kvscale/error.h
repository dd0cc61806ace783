#pragma once

#include <stdexcept>
#include <string>

namespace kv {

/// Everything kvscale throws. The message names the file, tensor or field, what was expected and
/// what was found.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A file cannot be opened, read, written, synced or renamed.
struct IoError : Error {
  using Error::Error;
};

/// A file's content breaks its own format, or lacks what the format promises.
struct FormatError : Error {
  using Error::Error;
};

/// A tensor has another rank, size, dtype or stride than the operation takes.
struct ShapeError : Error {
  using Error::Error;
};

/// A number or name lies outside what the operation takes.
struct ValueError : Error {
  using Error::Error;
};

/// A well-formed request that this build, machine or model cannot serve: says what is needed and
/// what is supported.
struct UnsupportedError : Error {
  using Error::Error;
};

/// What a process of kvscale returns.
enum ExitCode : int {
  kExitAccept = 0,         // done; for decide: deploy this layout
  kExitUsage = 1,          // wrong usage, unreadable or broken input
  kExitInconclusive = 10,  // decide: evidence is missing; inspect: doubtful; verify: not provable
  kExitReject = 20,        // decide: no FP8 layout; inspect: broken; verify: contradicted
};

}  // namespace kv
