#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/stored_tensor.h"
#include "tensor/mapped_file.h"

namespace kv {

/// The longest header of a safetensors file, by the format itself.
inline constexpr uint64_t kMostSafetensorsHeaderBytes = 100'000'000;

/// One safetensors file, memory-mapped.
class SafetensorsFile {
 public:
  /// Throws IoError, and FormatError when the header is no JSON object of tensors, a name repeats,
  /// a dtype is unknown, or the tensors do not cover the data exactly: each as long as its shape
  /// says, without holes or overlaps, up to the end of the file.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(const SafetensorsFile&) = delete;  // the tensors point to file_
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  std::string file_name() const { return file_.path().filename().string(); }

  /// In the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace kv
