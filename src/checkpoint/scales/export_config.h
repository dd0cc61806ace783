#pragma once

#include <nlohmann/json_fwd.hpp>

#include "checkpoint/scales/declaration.h"
#include "checkpoint/scales/export_checkpoint.h"

namespace kv {

/// config.json with the declaration of the cache: a new block, or the model's own with what it
/// lacks. Throws ValueError when the form does not go with the model's quantization.
nlohmann::json config_with_kv(nlohmann::json config, const KvDeclaration& model, ExportForm form,
                              bool per_head);

/// hf_quant_config.json of the ModelOpt form; `existing` is the model's own or null.
nlohmann::json side_file_with_kv(nlohmann::json existing);

}  // namespace kv
