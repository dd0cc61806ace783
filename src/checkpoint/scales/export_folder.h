#pragma once

#include <filesystem>
#include <string_view>

namespace kv {

/// A folder that is filled under another name and renamed when it is whole; removed again unless
/// finish() was reached.
class ExportFolder {
 public:
  /// Throws ValueError when `out` exists, IoError when its parent cannot be written to.
  explicit ExportFolder(const std::filesystem::path& out);
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void write(std::string_view name, std::string_view content) const;

  /// Links (or copies) a file, following symbolic links as model caches have them. Throws IoError
  /// when it lies on another file system and `copy` is false.
  void add(const std::filesystem::path& file, std::string_view name, bool copy) const;

  void finish();

 private:
  std::filesystem::path out_, path_;
  bool is_finished_ = false;
};

}  // namespace kv
