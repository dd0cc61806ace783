#pragma once

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kvscale/error.h"

namespace kv {

/// Throws an IoError for the call that has just failed: path, what could not be done, errno's text.
[[noreturn]] inline void io_fault(const std::filesystem::path& path, const char* what) {
  throw IoError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno)));
}

}  // namespace kv
