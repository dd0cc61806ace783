#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace kv {

/// A file mapped read-only into memory for as long as the object lives. Move-only.
class MappedFile {
 public:
  /// Throws IoError naming the path when it cannot be opened, is no regular file or cannot be
  /// mapped. An empty file gives an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Tells the kernel that the pages of `part` will not be needed again soon (weights already
  /// packed elsewhere).
  void drop(std::span<const uint8_t> part) const;

 private:
  std::filesystem::path path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kv
