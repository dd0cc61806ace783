#pragma once

#include <map>
#include <string>

#include "checkpoint/safetensors_file.h"
#include "checkpoint/scales/scale_set.h"
#include "checkpoint/scales/tensor_names.h"

namespace kv {

/// Sorts the tensors of safetensors files into a ScaleSet by their names.
class TensorScan {
 public:
  explicit TensorScan(ScaleSet& out) : out_(out) {}

  void add(const SafetensorsFile& file);

  /// Sorts what was found and decides which layers own a cache.
  void finish();

 private:
  void add_scale(const StoredTensor& tensor, const TensorRole& role, const std::string& file);
  void add_key_range(const StoredTensor& tensor, const TensorRole& role);

  ScaleSet& out_;
  std::map<int, KeyRange> ranges_;
  std::map<int, std::string> modules_;  // layer -> attention module
};

/// The order of ScaleSet::scales, and owner_layers where no weights told.
void finish_scales(ScaleSet& out);

/// The attention modules of a model's text layers, by layer: what scales are named after.
std::map<int, std::string> attention_modules(const std::filesystem::path& folder);

}  // namespace kv
