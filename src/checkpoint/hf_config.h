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

struct Family;

/// The specification that config.json declares, of a model_type of family.h. Throws FormatError
/// for a key that is missing or out of range, UnsupportedError for a part that needs other code.
ModelSpec read_hf_config(const JsonFields& config);

/// RoPE in either spelling: rope_theta with rope_scaling, or rope_parameters (transformers 5).
RopeSpec read_hf_rope(const JsonFields& config, int max_positions);

/// The same for layers without and with a window, where the family lets these turn otherwise: by
/// rope_local_base_freq or within rope_parameters. Reads spec's max_positions and windows, fills
/// rope and window_rope.
void read_hf_ropes(const JsonFields& config, const Family& family, ModelSpec& spec);

/// Throws UnsupportedError, naming key and value found and what is accepted, when config.json
/// declares quantized weights. Scales for a KV cache beside plain weights are fine.
void refuse_quantized_weights(const JsonFields& config);

/// Likewise for ModelOpt's hf_quant_config.json.
void refuse_quantized_weights_modelopt(const JsonFields& hf_quant_config);

}  // namespace kv
