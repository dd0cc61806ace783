#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/json.h"
#include "checkpoint/model_spec.h"

namespace kv {

/// A whole text file. Throws IoError.
std::string read_text_file(const std::filesystem::path& path);

/// The specification that config.json declares, of model_type llama or qwen2. Throws FormatError
/// for a key that is missing or out of range, UnsupportedError for a part that needs other code.
ModelSpec read_hf_config(const JsonFields& config);

/// RoPE in either spelling: rope_theta with rope_scaling, or rope_parameters (transformers 5).
RopeSpec read_hf_rope(const JsonFields& config, int max_positions);

/// Throws UnsupportedError, naming key and value found and what is accepted, when config.json
/// declares quantized weights. Scales for a KV cache beside plain weights are fine.
void refuse_quantized_weights(const JsonFields& config);

/// Likewise for ModelOpt's hf_quant_config.json.
void refuse_quantized_weights_modelopt(const JsonFields& hf_quant_config);

}  // namespace kv
