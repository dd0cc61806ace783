#include "checkpoint/scales/edge_onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "checkpoint/scales/protobuf_reader.h"
#include "kvscale/error.h"
#include "tensor/mapped_file.h"

namespace kv {
namespace {

// Field numbers of onnx.proto (ONNX IR 3 and later; they never change).
namespace field {
constexpr uint32_t kModelGraph = 7;
constexpr uint32_t kGraphNode = 1, kGraphInitializer = 5;
constexpr uint32_t kNodeInput = 1, kNodeName = 3, kNodeAttribute = 5;
constexpr uint32_t kAttributeName = 1, kAttributeFloats = 7;
constexpr uint32_t kTensorType = 2, kTensorFloats = 4, kTensorName = 8, kTensorRaw = 9;
}  // namespace field

constexpr uint64_t kFloat = 1;  // TensorProto.DataType
constexpr std::string_view kInput = "k_v_scale_quant_orig";
constexpr std::string_view kAttribute = "qkv_scales";

// Numbers, and the places in the file that they came from.
struct Floats {
  std::vector<float> values;
  std::vector<size_t> offsets;
};

// The bytes of the whole file, which offsets count from, and its name.
struct WholeFile {
  const uint8_t* begin;
  const std::string& file;
};

void append_floats(const ProtobufField& field, const WholeFile& source, Floats& out) {
  if (field.bytes.size() % sizeof(float) != 0) {
    throw FormatError(
        fmt::format("{}: {} bytes are no list of F32", source.file, field.bytes.size()));
  }
  for (size_t at = 0; at < field.bytes.size(); at += sizeof(float)) {
    out.values.emplace_back();
    std::memcpy(&out.values.back(), field.bytes.data() + at, sizeof(float));
    out.offsets.push_back(static_cast<size_t>(field.bytes.data() - source.begin) + at);
  }
}

struct Node {
  std::string name;
  std::vector<std::string> inputs;
  Floats scales;  // of the attribute
};

struct Graph {
  std::vector<Node> nodes;  // attention nodes, in the graph's order
  std::map<std::string, Floats> initializers;
};

void read_attribute(const ProtobufField& field, const WholeFile& source, Node& node) {
  ProtobufReader reader(field.bytes, source.file);
  std::string name;
  Floats floats;
  while (const auto part = reader.next()) {
    if (part->number == field::kAttributeName) name = part->text();
    if (part->number == field::kAttributeFloats) append_floats(*part, source, floats);
  }
  if (name == kAttribute) node.scales = std::move(floats);
}

void read_node(const ProtobufField& field, const WholeFile& source, Graph& graph) {
  ProtobufReader reader(field.bytes, source.file);
  Node node;
  while (const auto part = reader.next()) {
    if (part->number == field::kNodeInput) node.inputs.emplace_back(part->text());
    if (part->number == field::kNodeName) node.name = part->text();
    if (part->number == field::kNodeAttribute) read_attribute(*part, source, node);
  }
  const bool has_input = std::ranges::any_of(node.inputs, [](const std::string& input) {
    return input.find(kInput) != std::string::npos;
  });
  if (has_input || !node.scales.values.empty()) graph.nodes.push_back(std::move(node));
}

void read_initializer(const ProtobufField& field, const WholeFile& source, Graph& graph) {
  ProtobufReader reader(field.bytes, source.file);
  std::string name;
  uint64_t type = 0;
  std::vector<ProtobufField> data;
  while (const auto part = reader.next()) {
    if (part->number == field::kTensorName) name = part->text();
    if (part->number == field::kTensorType) type = part->value;
    if (part->number == field::kTensorRaw || part->number == field::kTensorFloats) {
      data.push_back(*part);
    }
  }
  if (name.find(kInput) == std::string::npos) return;
  if (type != kFloat) throw FormatError(fmt::format("{}: {}: expected F32", source.file, name));
  for (const ProtobufField& part : data) append_floats(part, source, graph.initializers[name]);
}

Graph read_graph(std::span<const uint8_t> model, const std::string& file) {
  Graph graph;
  const WholeFile source{model.data(), file};
  bool has_graph = false;
  ProtobufReader reader(model, file);
  while (const auto part = reader.next()) {
    if (part->number != field::kModelGraph) continue;
    has_graph = true;
    ProtobufReader inner(part->bytes, file);
    while (const auto entry = inner.next()) {
      if (entry->number == field::kGraphNode) read_node(*entry, source, graph);
      if (entry->number == field::kGraphInitializer) read_initializer(*entry, source, graph);
    }
  }
  if (!has_graph) throw FormatError(fmt::format("{}: expected an ONNX graph, found none", file));
  return graph;
}

// The first number in a node's name that stands alone: "/layers.3/attn" -> 3.
int layer_of(const std::string& name, int otherwise) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t begin = name.find_first_of("0123456789");
  if (begin == std::string::npos) return otherwise;
  int layer = 0;
  for (size_t i = begin; i < name.size() && is_digit(name[i]) && layer < 100000; ++i) {
    layer = layer * 10 + (name[i] - '0');
  }
  return layer < kNumLayersRange.most ? layer : otherwise;
}

EdgeOnnxScales scales_of(int layer, const std::string& file, const std::string& tensor,
                         std::string_view spelling, const Floats& floats) {
  if (floats.values.size() != 2 && floats.values.size() != 3) {
    throw FormatError(fmt::format("{}: {}: expected 2 values [k, v] or 3 [q, k, v], found {}", file,
                                  tensor, floats.values.size()));
  }
  return {layer, tensor, spelling, floats.values, floats.offsets};
}

void add(const EdgeOnnxScales& from, const std::string& file, ScaleSet& out) {
  const auto put = [&](ScaleSide side, float value) {
    StoredScale scale;
    scale.layer = from.layer;
    scale.side = side;
    scale.values = {value};
    scale.dtype = "ONNX";
    scale.file = file;
    scale.tensor = from.tensor;
    scale.spelling = from.spelling;
    out.scales.push_back(std::move(scale));
  };
  if (from.values.size() == 3) put(ScaleSide::kQ, from.values[0]);
  put(ScaleSide::kK, from.k());
  put(ScaleSide::kV, from.v());
}

}  // namespace

std::vector<EdgeOnnxScales> edge_onnx_scales(std::span<const uint8_t> bytes,
                                             const std::string& file) {
  const Graph graph = read_graph(bytes, file);
  std::vector<EdgeOnnxScales> out;
  int place = 0;
  for (const Node& node : graph.nodes) {
    const int layer = layer_of(node.name, place++);
    if (!node.scales.values.empty()) {
      out.push_back(scales_of(layer, file, node.name + "." + std::string(kAttribute), kAttribute,
                              node.scales));
      continue;
    }
    for (const std::string& input : node.inputs) {
      const auto found = graph.initializers.find(input);
      if (found == graph.initializers.end()) continue;
      out.push_back(scales_of(layer, file, input, kInput, found->second));
    }
  }
  return out;
}

void read_edge_onnx(const std::filesystem::path& path, ScaleSet& out) {
  const std::string file = path.filename().string();
  const MappedFile mapped(path);
  out.files.read.push_back(file);
  out.declared.family = ScaleFamily::kEdgeOnnx;
  out.declared.source = file;
  out.declared.k_post_rope = true;
  for (const EdgeOnnxScales& scales : edge_onnx_scales(mapped.bytes(), file)) {
    out.declared.has_kv = out.declared.is_fp8 = true;
    add(scales, file, out);
  }
  if (out.geometry.num_layers == 0) {
    for (const StoredScale& scale : out.scales) {
      out.geometry.num_layers = std::max(out.geometry.num_layers, scale.layer + 1);
    }
  }
}

}  // namespace kv
