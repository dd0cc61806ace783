#include "checkpoint/model_files.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>

#include "kvscale/error.h"

namespace kv {
namespace {

// N of "model.layers.N.suffix" or "blk.N.suffix".
std::optional<int64_t> layer_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

// Layers that have a tensor of the architecture: found by the names that layer 0 should have.
std::set<int64_t> layers_found(const ModelFiles& files,
                               const std::vector<RequiredTensor>& required) {
  const std::string_view prefix = files.is_gguf ? "blk." : "model.layers.";
  std::set<std::string, std::less<>> suffixes;
  const std::string first = std::string(prefix) + "0.";
  for (const RequiredTensor& tensor : required) {
    const std::string& name = file_tensor_name(files, tensor);
    if (name.starts_with(first)) suffixes.insert(name.substr(first.size()));
  }
  std::set<int64_t> layers;
  for (const auto& [name, tensor] : files.tensors) {
    const std::optional<int64_t> layer = layer_of(name, prefix);
    if (!layer) continue;
    const std::string_view suffix =
        std::string_view(name).substr(name.find('.', prefix.size()) + 1);
    if (suffixes.contains(suffix)) layers.insert(*layer);
  }
  return layers;
}

void expect_layers(const ModelFiles& files, const std::vector<RequiredTensor>& required) {
  const std::set<int64_t> found = layers_found(files, required);
  const auto declared = static_cast<size_t>(files.spec.num_layers);
  const bool complete = found.size() == declared && *found.rbegin() == files.spec.num_layers - 1;
  if (complete) return;
  std::string which;
  for (int64_t layer = 0; layer < files.spec.num_layers && !found.empty(); ++layer) {
    if (found.contains(layer)) continue;
    which = fmt::format("; layer {} has none", layer);
    break;
  }
  throw FormatError(fmt::format("{}: declares {} layers, found tensors for {}{}", files.label,
                                declared, found.size(), which));
}

void expect_tensor(const ModelFiles& files, const RequiredTensor& required) {
  const std::string& name = file_tensor_name(files, required);
  const auto found = files.tensors.find(name);
  if (found == files.tensors.end()) {
    const bool is_head = required.name == "lm_head.weight";
    throw FormatError(fmt::format("{}: tensor {:?} is missing{}", files.label, name,
                                  is_head ? ", though tie_word_embeddings is false" : ""));
  }
  const StoredTensor& tensor = found->second;
  if (tensor.shape != required.shape) {
    throw FormatError(fmt::format("{}: tensor {:?}: expected shape {}, found {}", files.label, name,
                                  shape_text(required.shape), shape_text(tensor.shape)));
  }
  const bool is_blocked_vector = tensor.shape.size() == 1 && tensor.encoding->is_blocked();
  if (tensor.encoding->decode == nullptr || is_blocked_vector) {
    throw UnsupportedError(
        fmt::format("{}: tensor {:?}: type {} cannot be read{}; readable: {}", files.label, name,
                    tensor.encoding->name, is_blocked_vector ? " as a vector" : "",
                    is_blocked_vector ? "F32, F16, BF16" : readable_encodings()));
  }
}

}  // namespace

const std::string& file_tensor_name(const ModelFiles& files, const RequiredTensor& tensor) {
  return files.is_gguf ? tensor.gguf_name : tensor.name;
}

void expect_tensors(const ModelFiles& files, const std::vector<RequiredTensor>& required) {
  expect_layers(files, required);
  for (const RequiredTensor& tensor : required) expect_tensor(files, tensor);
}

}  // namespace kv
