#include "checkpoint/scales/export_folder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "kvscale/error.h"
#include "tensor/atomic_file.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

}  // namespace

ExportFolder::ExportFolder(const fs::path& out) : out_(out) {
  if (fs::exists(fs::symlink_status(out))) {
    throw ValueError(fmt::format("{}: expected a name that does not exist yet", out.string()));
  }
  const fs::path parent = out.parent_path().empty() ? "." : out.parent_path();
  std::string pattern = (parent / ("." + out.filename().string() + ".XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw IoError(
        fmt::format("{}: cannot make a folder: {}", parent.string(), std::strerror(errno)));
  }
  path_ = pattern;
  ::chmod(path_.c_str(), 0755);
}

ExportFolder::~ExportFolder() {
  std::error_code ignored;
  if (!is_finished_) fs::remove_all(path_, ignored);
}

void ExportFolder::write(std::string_view name, std::string_view content) const {
  write_file_atomically(path_ / name, content);
}

void ExportFolder::add(const fs::path& file, std::string_view name, bool copy) const {
  std::error_code error;
  const fs::path source = fs::canonical(file, error);
  if (!error && copy) {
    fs::copy_file(source, path_ / name, error);
  } else if (!error) {
    fs::create_hard_link(source, path_ / name, error);
  }
  if (!error) return;
  const bool is_elsewhere = error == std::errc::cross_device_link;
  throw IoError(fmt::format("{}: cannot {} it into {}: {}{}", file.string(), copy ? "copy" : "link",
                            out_.parent_path().string(), error.message(),
                            is_elsewhere ? "; --copy copies the weights instead" : ""));
}

void ExportFolder::finish() {
  std::error_code error;
  fs::rename(path_, out_, error);
  if (error) {
    throw IoError(fmt::format("{}: cannot rename the finished folder to it: {}", out_.string(),
                              error.message()));
  }
  is_finished_ = true;
}

}  // namespace kv
