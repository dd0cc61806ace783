#include "tensor/atomic_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kvscale/error.h"
#include "tensor/io_fault.h"

namespace kv {
namespace {

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) io_fault(path, "cannot write");
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(fd) != 0) io_fault(path, "cannot sync");
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) io_fault(folder, "cannot open folder");
  ::fsync(fd);  // some file systems refuse to sync a folder; the file itself is safe already
  ::close(fd);
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::string temporary = path.string() + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) io_fault(path, "cannot create a temporary file beside it");
  try {
    if (::fchmod(fd, 0644) != 0) io_fault(path, "cannot set its mode");
    write_all(fd, content, path);
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      io_fault(path, "cannot rename the temporary file to it");
  } catch (...) {
    ::close(fd);
    ::unlink(temporary.c_str());
    throw;
  }
  ::close(fd);
  sync_folder(path.parent_path());
}

}  // namespace kv
