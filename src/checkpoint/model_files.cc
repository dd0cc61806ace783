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
    const std::string& name = tensor.place(files.is_gguf).name;
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
  const Place& place = required.place(files.is_gguf);
  const std::string& name = place.name;
  const auto found = files.tensors.find(name);
  if (found == files.tensors.end()) {
    const bool is_head = required.name == "lm_head.weight";
    throw FormatError(fmt::format("{}: tensor {:?} is missing{}", files.label, name,
                                  is_head ? ", though tie_word_embeddings is false" : ""));
  }
  const StoredTensor& tensor = found->second;
  if (tensor.shape != place.shape) {
    throw FormatError(fmt::format("{}: tensor {:?}: expected shape {}, found {}", files.label, name,
                                  shape_text(place.shape), shape_text(tensor.shape)));
  }
  const bool is_blocked_vector = tensor.shape.size() == 1 && tensor.encoding->is_blocked();
  if (tensor.encoding->decode == nullptr || is_blocked_vector) {
    throw UnsupportedError(
        fmt::format("{}: tensor {:?}: type {} cannot be read{}; readable: {}", files.label, name,
                    tensor.encoding->name, is_blocked_vector ? " as a vector" : "",
                    is_blocked_vector ? "F32, F16, BF16" : readable_encodings()));
  }
}

// A bias that the architecture has no place for would be missing from the results.
void refuse_other_biases(const ModelFiles& files, const std::vector<RequiredTensor>& required) {
  std::set<std::string_view> known;
  for (const RequiredTensor& tensor : required) known.insert(tensor.place(files.is_gguf).name);
  for (const auto& [name, tensor] : files.tensors) {
    if (!name.ends_with(".bias") || known.contains(name)) continue;
    throw UnsupportedError(fmt::format("{}: tensor {:?}: {} has no such bias here", files.label,
                                       name, files.spec.architecture));
  }
}

}  // namespace

StoredTensor stored_part(const StoredTensor& whole, const Place& place,
                         const RequiredTensor& needed) {
  StoredTensor part = whole;
  part.shape = needed.shape;
  if (part.shape == whole.shape) return part;
  const Encoding& encoding = *whole.encoding;
  const int64_t row_bytes = part.row_values() / encoding.block_values * encoding.block_bytes;
  part.bytes = whole.bytes.subspan(static_cast<size_t>(place.first_row * row_bytes),
                                   static_cast<size_t>(part.num_rows() * row_bytes));
  return part;
}

void expect_tensors(const ModelFiles& files, const std::vector<RequiredTensor>& required) {
  expect_layers(files, required);
  for (const RequiredTensor& tensor : required) expect_tensor(files, tensor);
  refuse_other_biases(files, required);
}

}  // namespace kv
