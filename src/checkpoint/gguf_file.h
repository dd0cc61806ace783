#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/stored_tensor.h"
#include "tensor/mapped_file.h"

namespace kv {

/// The container of GGUF v2 and v3: metadata and tensors, memory-mapped, nothing interpreted.
class GgufFile {
 public:
  /// Walks over the whole header. Throws IoError, FormatError (magic, version, counts, lengths,
  /// repeated names, tensors that overlap or reach past the end), UnsupportedError (big-endian
  /// and split files, unknown tensor types).
  explicit GgufFile(const std::filesystem::path& path);
  GgufFile(const GgufFile&) = delete;  // the tensors point to file_
  GgufFile& operator=(const GgufFile&) = delete;

  std::string file_name() const { return file_.path().filename().string(); }
  const GgufMetadata& metadata() const { return metadata_; }

  /// Shapes as PyTorch has them: the contiguous dimension last.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  void read_tensors(ByteReader& reader, uint64_t count);
  uint64_t alignment() const;

  MappedFile file_;
  GgufMetadata metadata_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace kv
