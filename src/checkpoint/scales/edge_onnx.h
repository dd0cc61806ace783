#pragma once

#include <filesystem>

#include "checkpoint/scales/scale_set.h"

namespace kv {

/// Reads the scales of a TensorRT Edge-LLM graph: initializers of the input k_v_scale_quant_orig
/// ([k, v], release 0.5) and attributes qkv_scales ([q, k, v], later ones) of its attention nodes.
/// The layer is the number in the node's name, else its place among the attention nodes. Throws
/// FormatError when the file is no ONNX or a scale has another number of values.
void read_edge_onnx(const std::filesystem::path& path, ScaleSet& out);

}  // namespace kv
