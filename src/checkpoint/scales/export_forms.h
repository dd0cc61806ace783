#pragma once

#include <span>

#include "checkpoint/scales/export_checkpoint.h"
#include "checkpoint/scales/export_folder.h"
#include "checkpoint/scales/scale_set.h"

namespace kv {

/// Forms that are no Hugging Face directory. Each makes request.out as export_checkpoint() says;
/// `model` is what read_scales() found in request.model.

/// SGLang's file of one number per layer, alone: the model stays where it is.
void export_sglang_json(ExportRequest& request, const ScaleSet& model);

/// A legacy TensorRT-LLM checkpoint: the scales go into each rank's own file, since its loader
/// knows no other, so that weights are copied. One number for K and V of a layer.
void export_tensorrt_llm(ExportRequest& request, const ScaleSet& model);

/// TensorRT Edge-LLM graphs: the numbers in the graph are replaced where they stand. Every
/// attention node must have its place for them.
void export_edge_onnx(ExportRequest& request, const ScaleSet& model);

/// The model's README.md with the request's paragraph behind it.
void write_card(const ExportRequest& request, const ExportFolder& folder);

/// Links (or copies) the files of request.model but for hidden ones, those that an export rewrites
/// and those whose names end in one of `endings`.
void add_other_files(const ExportRequest& request, std::span<const std::string_view> endings,
                     const ExportFolder& folder);

/// The scale that layer `layer` gets for K and V. Throws ValueError naming the form when the record
/// does not hold exactly one number for both.
float shared_scale(const ExportRequest& request, int layer);

}  // namespace kv
