#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/scales/export_record.h"

namespace kv {

/// How scales are written beside a model.
enum class ExportForm : uint8_t {
  kCompressedTensors,  // profile A: SELF_ATTN.k_scale, shape [1] or [num_kv_heads, 1, 1]
  kModelOpt,           // profile B: SELF_ATTN.k_proj.k_scale, shape []; per tensor only
  kSglangJson,         // a file of its own; the model stays where it is
  kTensorRtLlmLegacy,  // attention.kv_cache_scaling_factor in each rank's file: one for K and V
  kEdgeOnnx            // in the graph of TensorRT Edge-LLM, where its placeholders stand
};

/// "compressed-tensors", "modelopt", "sglang-json", "tensorrt-llm-legacy", "edge-onnx"; throws
/// ValueError for another name.
ExportForm export_form(std::string_view name);
std::string_view name(ExportForm form);

struct ExportRequest {
  std::filesystem::path
      model;                  // a Hugging Face directory without KV scales, or what the form needs
  std::filesystem::path out;  // must not exist
  ExportForm form = ExportForm::kCompressedTensors;
  ExportRecord record;  // with the scales; model_files is filled in here
  std::string card;     // paragraph for README.md
  bool copy = false;    // copy files instead of linking them
  int tp = 1;           // entries of the SGLang JSON
};

/// Makes `out`: the model's files by hard links, the scales in a shard of their own, the index and
/// the configuration that engines need to find them, kvscale_export.json and README.md. A single
/// model.safetensors is linked under the name of a first shard, since transformers passes over an
/// index beside it. What forms of another kind make is said in export_forms.h. All of it appears at
/// once or not at all. Throws IoError, FormatError, ValueError (out exists, the form does not fit
/// the model, the model has KV scales already).
void export_checkpoint(ExportRequest request);

}  // namespace kv
