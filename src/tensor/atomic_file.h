#pragma once

#include <filesystem>
#include <string_view>

namespace kv {

/// Replaces `path` by `content` so that a reader sees the old file or the whole new one, also after
/// a crash: writes a temporary beside it, syncs it, renames it, syncs the folder. Throws IoError;
/// then no temporary is left behind.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace kv
