#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/architecture.h"
#include "checkpoint/gguf_file.h"
#include "checkpoint/model_spec.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/stored_tensor.h"

namespace kv {

/// What a reader makes of a checkpoint's files, before anything is held against the architecture.
struct ModelFiles {
  std::string label;     // the file or folder, for messages
  bool is_gguf = false;  // tensors go by GGUF's names
  ModelSpec spec;
  std::map<std::string, StoredTensor, std::less<>> tensors;  // by the file's names
  std::vector<std::string> notes;
  std::string chat_template;
  std::unique_ptr<GgufFile> gguf;
  std::vector<std::unique_ptr<SafetensorsFile>> shards;
};

/// Reads metadata and container of a GGUF file of an architecture of family.h. Throws IoError,
/// FormatError, UnsupportedError.
ModelFiles read_gguf_model(const std::filesystem::path& path);

/// Reads config.json, generation_config.json, tokenizer_config.json and the safetensors headers of
/// a Hugging Face directory. Throws likewise.
ModelFiles read_hf_model(const std::filesystem::path& folder);

/// The part of a file's tensor, which has the place's shape, that is the tensor needed.
StoredTensor stored_part(const StoredTensor& whole, const Place& place,
                         const RequiredTensor& needed);

/// Throws FormatError unless every tensor of the architecture is there with its shape, and
/// UnsupportedError when one cannot be read. A file with other layers than it declares is told so
/// first.
void expect_tensors(const ModelFiles& files, const std::vector<RequiredTensor>& required);

}  // namespace kv
