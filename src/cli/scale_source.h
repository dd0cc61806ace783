#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/scale_set.h"

namespace kv::cli {

/// read_scales(), and kvscale's own scale file (docs/formats/scale-file.md) in the same form:
/// scales per head, family "kvscale".
ScaleSet read_scale_source(const std::filesystem::path& path);

/// Whether the file is kvscale's own scale file.
bool is_scale_file(const std::filesystem::path& path);

/// Reads all weights of an exported directory and adds a finding when they are not those of its
/// record, or when that cannot be told. Slow for large models.
void check_model_hash(const ScaleSet& set, std::vector<ScaleWarning>& out);

}  // namespace kv::cli
