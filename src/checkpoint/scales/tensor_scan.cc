#include "checkpoint/scales/tensor_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <tuple>

namespace kv {
namespace {

using Kind = TensorRole::Kind;

// More values than any model has heads: no scale, and not worth reading.
constexpr int64_t kMostValues = 1 << 16;

int64_t elements(const StoredTensor& tensor) { return checked_elements(tensor.shape, tensor.name); }

bool is_readable(const StoredTensor& tensor) {
  return tensor.encoding->decode != nullptr || tensor.encoding->name == "F64";
}

std::vector<float> read_values(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(elements(tensor)));
  if (tensor.encoding->decode != nullptr) {
    tensor.encoding->decode(tensor.bytes.data(), std::ssize(values), values.data());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {  // F64: engines hold F32
    double wide;
    std::memcpy(&wide, tensor.bytes.data() + i * sizeof wide, sizeof wide);
    values[i] = static_cast<float>(wide);
  }
  return values;
}

// Zero points are E4M3 or integers; in either, zero is a byte without bits beside the sign.
bool is_all_zero(const StoredTensor& tensor) {
  if (is_readable(tensor)) {
    return std::ranges::all_of(read_values(tensor), [](float v) { return v == 0; });
  }
  return std::ranges::all_of(tensor.bytes, [](uint8_t b) { return (b & 0x7f) == 0; });
}

// "rank3.safetensors" -> 3
int rank_of_file(const std::string& file) {
  int rank = -1;
  if (file.starts_with("rank")) {
    std::from_chars(file.data() + 4, file.data() + file.size(), rank);
  }
  return rank;
}

double largest(const std::vector<float>& values, double added) {
  double most = 0;
  for (const float v : values) {
    if (std::isfinite(v)) most = std::max(most, std::abs(static_cast<double>(v) + added));
  }
  return most;
}

double median_magnitude(std::vector<float> values) {
  if (values.empty()) return 0;
  for (float& v : values) v = std::isfinite(v) ? std::abs(v) : 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void TensorScan::add(const SafetensorsFile& file) {
  const std::string name = file.file_name();
  out_.files.read.push_back(name);
  out_.files.num_tensors += file.tensors().size();
  for (const StoredTensor& tensor : file.tensors()) {
    const std::optional<TensorRole> role = tensor_role(tensor.name, out_.geometry.num_layers);
    if (!role) continue;
    switch (role->kind) {
      case Kind::kScale:
      case Kind::kSharedScale:
        add_scale(tensor, *role, name);
        break;
      case Kind::kZeroPoint:
        out_.companions.push_back({ScaleCompanion::Kind::kZeroPoint, role->layer, name, tensor.name,
                                   elements(tensor) <= kMostValues && is_all_zero(tensor)});
        break;
      case Kind::kBias:
        out_.companions.push_back(
            {ScaleCompanion::Kind::kBias, role->layer, name, tensor.name, false});
        break;
      case Kind::kKeyNorm:
      case Kind::kKeyBias:
        add_key_range(tensor, *role);
        break;
      case Kind::kKeyWeight:
        modules_.emplace(role->layer, role->module);
        break;
      case Kind::kWeightScale:
        ++out_.files.num_weight_scales;
        break;
      case Kind::kUnread:
        out_.unread.push_back({name, tensor.name, role->why});
        break;
    }
  }
}

void TensorScan::add_scale(const StoredTensor& tensor, const TensorRole& role,
                           const std::string& file) {
  const int64_t count = elements(tensor);
  if (!is_readable(tensor) || count == 0 || count > kMostValues) {
    out_.unread.push_back({file, tensor.name,
                           fmt::format("{} of shape {} is no scale", tensor.encoding->name,
                                       shape_text(tensor.shape))});
    return;
  }
  StoredScale scale{role.layer,
                    role.side,
                    read_values(tensor),
                    tensor.shape,
                    std::string(tensor.encoding->name),
                    file,
                    tensor.name,
                    role.spelling,
                    role.kind == Kind::kSharedScale,
                    out_.declared.family == ScaleFamily::kTensorRtLlm ? rank_of_file(file) : -1};
  out_.scales.push_back(scale);
  if (!scale.is_shared) return;
  scale.side = ScaleSide::kV;
  out_.scales.push_back(std::move(scale));
}

void TensorScan::add_key_range(const StoredTensor& tensor, const TensorRole& role) {
  const int64_t count = elements(tensor);
  if (tensor.encoding->decode == nullptr || count > kMostValues) return;
  const std::vector<float> values = read_values(tensor);
  KeyRange& range = ranges_[role.layer];
  range.layer = role.layer;
  if (role.kind == Kind::kKeyBias) {
    range.k_bias_max = largest(values, 0);
    range.k_bias_median = median_magnitude(values);
    return;
  }
  // Norms over whole projections (one weight per channel of all heads) bound nothing per head.
  if (count != out_.geometry.head_dim || out_.geometry.rope_mscale == 0) return;
  range.k_norm_bound = std::sqrt(static_cast<double>(count)) * out_.geometry.rope_mscale *
                       largest(values, out_.geometry.norm_adds_one ? 1.0 : 0.0);
}

void TensorScan::finish() {
  for (const auto& [layer, module] : modules_) {
    if (cache_layer(out_.geometry, layer) == layer) out_.owner_layers.push_back(layer);
  }
  for (const auto& [layer, range] : ranges_) out_.key_ranges.push_back(range);
  finish_scales(out_);
}

void finish_scales(ScaleSet& out) {
  std::ranges::sort(out.scales, [](const StoredScale& a, const StoredScale& b) {
    const auto key = [](const StoredScale& s) {
      return std::tuple(s.layer, s.side, s.rank, spelling_rank(s.spelling),
                        std::string_view(s.file));
    };
    return key(a) < key(b);
  });
  if (!out.owner_layers.empty()) return;
  const std::vector<std::string>& types = out.geometry.layer_types;
  for (int layer = 0; layer < out.geometry.num_layers; ++layer) {
    const bool has_type = layer < std::ssize(types);
    const bool caches =
        !has_type || types[static_cast<size_t>(layer)].find("attention") != std::string::npos;
    const bool is_linear = has_type && types[static_cast<size_t>(layer)] == "linear_attention";
    if (caches && !is_linear && cache_layer(out.geometry, layer) == layer) {
      out.owner_layers.push_back(layer);
    }
  }
}

std::map<int, std::string> attention_modules(const std::filesystem::path& folder) {
  std::map<int, std::string> modules;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    for (const StoredTensor& tensor : file.tensors()) {
      const std::optional<TensorRole> role = tensor_role(tensor.name, 0);
      if (role && role->kind == Kind::kKeyWeight) modules.emplace(role->layer, role->module);
    }
  }
  return modules;
}

}  // namespace kv
