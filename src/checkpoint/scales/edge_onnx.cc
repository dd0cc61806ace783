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

void append_floats(const ProtobufField& source, std::vector<float>& out, const std::string& file) {
  if (source.wire_type == 5) {
    const auto bits = static_cast<uint32_t>(source.value);
    out.emplace_back();
    std::memcpy(&out.back(), &bits, sizeof bits);
    return;
  }
  if (source.bytes.size() % sizeof(float) != 0) {
    throw FormatError(fmt::format("{}: {} bytes are no list of F32", file, source.bytes.size()));
  }
  const size_t before = out.size();
  out.resize(before + source.bytes.size() / sizeof(float));
  if (!source.bytes.empty()) {
    std::memcpy(out.data() + before, source.bytes.data(), source.bytes.size());
  }
}

struct Node {
  std::string name;
  std::vector<std::string> inputs;
  std::vector<float> scales;  // of the attribute
};

struct Graph {
  std::vector<Node> nodes;  // attention nodes, in the graph's order
  std::map<std::string, std::vector<float>> initializers;
};

void read_attribute(const ProtobufField& source, Node& node, const std::string& file) {
  ProtobufReader reader(source.bytes, file);
  std::string name;
  std::vector<float> floats;
  while (const auto part = reader.next()) {
    if (part->number == field::kAttributeName) name = part->text();
    if (part->number == field::kAttributeFloats) append_floats(*part, floats, file);
  }
  if (name == kAttribute) node.scales = std::move(floats);
}

void read_node(const ProtobufField& source, Graph& graph, const std::string& file) {
  ProtobufReader reader(source.bytes, file);
  Node node;
  while (const auto part = reader.next()) {
    if (part->number == field::kNodeInput) node.inputs.emplace_back(part->text());
    if (part->number == field::kNodeName) node.name = part->text();
    if (part->number == field::kNodeAttribute) read_attribute(*part, node, file);
  }
  const bool has_input = std::ranges::any_of(node.inputs, [](const std::string& input) {
    return input.find(kInput) != std::string::npos;
  });
  if (has_input || !node.scales.empty()) graph.nodes.push_back(std::move(node));
}

void read_initializer(const ProtobufField& source, Graph& graph, const std::string& file) {
  ProtobufReader reader(source.bytes, file);
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
  if (type != kFloat) throw FormatError(fmt::format("{}: {}: expected F32", file, name));
  for (const ProtobufField& part : data) append_floats(part, graph.initializers[name], file);
}

Graph read_graph(std::span<const uint8_t> model, const std::string& file) {
  Graph graph;
  bool has_graph = false;
  ProtobufReader reader(model, file);
  while (const auto part = reader.next()) {
    if (part->number != field::kModelGraph) continue;
    has_graph = true;
    ProtobufReader inner(part->bytes, file);
    while (const auto entry = inner.next()) {
      if (entry->number == field::kGraphNode) read_node(*entry, graph, file);
      if (entry->number == field::kGraphInitializer) read_initializer(*entry, graph, file);
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

void add(ScaleSet& out, int layer, const std::string& file, const std::string& tensor,
         std::string_view spelling, std::span<const float> values) {
  const bool has_q = values.size() == 3;
  if (values.size() != 2 && !has_q) {
    throw FormatError(fmt::format("{}: {}: expected 2 values [k, v] or 3 [q, k, v], found {}", file,
                                  tensor, values.size()));
  }
  const auto put = [&](ScaleSide side, float value) {
    StoredScale scale;
    scale.layer = layer;
    scale.side = side;
    scale.values = {value};
    scale.dtype = "ONNX";
    scale.file = file;
    scale.tensor = tensor;
    scale.spelling = spelling;
    out.scales.push_back(std::move(scale));
  };
  if (has_q) put(ScaleSide::kQ, values[0]);
  put(ScaleSide::kK, values[has_q ? 1 : 0]);
  put(ScaleSide::kV, values[has_q ? 2 : 1]);
}

}  // namespace

void read_edge_onnx(const std::filesystem::path& path, ScaleSet& out) {
  const std::string file = path.filename().string();
  const MappedFile mapped(path);
  const Graph graph = read_graph(mapped.bytes(), file);
  out.files.read.push_back(file);
  out.declared.family = ScaleFamily::kEdgeOnnx;
  out.declared.source = file;
  out.declared.k_post_rope = true;
  int place = 0;
  for (const Node& node : graph.nodes) {
    const int layer = layer_of(node.name, place++);
    out.declared.has_kv = out.declared.is_fp8 = true;
    if (!node.scales.empty()) {
      add(out, layer, file, node.name + "." + std::string(kAttribute), kAttribute, node.scales);
      continue;
    }
    for (const std::string& input : node.inputs) {
      const auto found = graph.initializers.find(input);
      if (found != graph.initializers.end()) add(out, layer, file, input, kInput, found->second);
    }
  }
  if (out.geometry.num_layers == 0) {
    for (const StoredScale& scale : out.scales) {
      out.geometry.num_layers = std::max(out.geometry.num_layers, scale.layer + 1);
    }
  }
}

}  // namespace kv
