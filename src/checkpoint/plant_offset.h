#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/model_files.h"
#include "checkpoint/scales/export_folder.h"

namespace kv {

/// Channels of a key that RoPE leaves almost where they are: of pairs that turn by less than 0.1
/// radian over 2,048 positions. Ascending, both halves; never empty, the slowest pair is always in.
std::vector<int64_t> slow_channels(const ModelSpec& spec);

/// Writes config.json and model.safetensors of `model`, whose `files` were read: a llama model
/// without biases in one file, to `out` with biases: zero, but `size` and -`size` in turn on the
/// slow channels of the keys of `layers`. Throws ValueError for another model.
void write_offset(const ModelFiles& files, const std::filesystem::path& model,
                  std::span<const int64_t> layers, double size, const ExportFolder& out);

}  // namespace kv
