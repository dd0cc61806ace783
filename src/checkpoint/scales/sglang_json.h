#pragma once

#include <filesystem>

#include "checkpoint/scales/scale_set.h"

namespace kv {

/// Reads SGLang's --quantization-param-path file (also that of vLLM up to 0.6): one number per
/// tensor-parallel rank and layer, for K and V alike. model_type may be missing here; SGLang wants
/// it. Throws FormatError naming the field.
void read_sglang_json(const std::filesystem::path& path, ScaleSet& out);

/// The file's text for `scales[rank][layer]`, every layer of the model in order.
std::string sglang_json_text(const std::string& model_type,
                             const std::vector<std::vector<float>>& scales);

}  // namespace kv
