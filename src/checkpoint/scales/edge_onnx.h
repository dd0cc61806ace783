#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/scales/scale_set.h"

namespace kv {

/// The scales of one attention node of a TensorRT Edge-LLM graph, and where in the file they lie.
struct EdgeOnnxScales {
  int layer = 0;
  std::string tensor;           // the initializer's name, or the node's with its attribute
  std::string_view spelling;    // "k_v_scale_quant_orig" or "qkv_scales"
  std::vector<float> values;    // [k, v] or [q, k, v]
  std::vector<size_t> offsets;  // of each value's 4 bytes

  float k() const { return values[values.size() - 2]; }
  float v() const { return values.back(); }
};

/// Scales of a graph in the order of its attention nodes: initializers of the input
/// k_v_scale_quant_orig ([k, v], release 0.5) and attributes qkv_scales ([q, k, v], later ones).
/// The layer is the number in the node's name, else its place among the attention nodes. `file`
/// names it in errors. Throws FormatError when the bytes are no ONNX or a scale has another number
/// of values.
std::vector<EdgeOnnxScales> edge_onnx_scales(std::span<const uint8_t> graph,
                                             const std::string& file);

/// Adds the scales of the graph at `path` to `out`. Throws FormatError likewise, and IoError.
void read_edge_onnx(const std::filesystem::path& path, ScaleSet& out);

}  // namespace kv
