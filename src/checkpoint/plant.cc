#include "checkpoint/plant.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>

#include "checkpoint/checkpoint.h"
#include "checkpoint/family.h"
#include "checkpoint/model_files.h"
#include "checkpoint/plant_offset.h"
#include "checkpoint/scales/export_folder.h"
#include "checkpoint/scales/scale_set.h"
#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/f16.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

// A ratio of 2^16 would leave the starved head three steps of E4M3, which costs the built-in model
// 3 % of its answers, as much as the quick margin. 2^20 leaves it nothing.
constexpr int kClipExponent = 8, kUpExponent = 10, kDownExponent = -10;

/// Rows of a tensor times 2^exponent; entries of a bias are its rows.
struct Edit {
  int64_t first_row = 0, num_rows = 0;
  int exponent = 0;
};
using Edits = std::map<std::string, std::vector<Edit>>;  // by tensor

class EditList {
 public:
  explicit EditList(const ModelSpec& spec) : spec_(spec) {}

  void clip_keys(int64_t layer) {
    add(layer, "k_proj", 0, kv_rows(), kClipExponent);
    add(layer, "q_proj", 0, q_rows(), -kClipExponent);
  }

  void clip_values(int64_t layer) {
    add(layer, "v_proj", 0, kv_rows(), kClipExponent);
    // The bias of O is added after its columns and stays.
    edits_[tensor(layer, "o_proj", "weight")].push_back({0, spec_.hidden_size, -kClipExponent});
  }

  void disperse_heads(int64_t layer) {
    scale_head(layer, 0, kUpExponent);
    scale_head(layer, 1, kDownExponent);
  }

  const Edits& edits() const { return edits_; }

 private:
  int64_t kv_rows() const { return int64_t{spec_.num_kv_heads} * spec_.head_dim; }
  int64_t q_rows() const { return int64_t{spec_.num_q_heads} * spec_.head_dim; }

  static std::string tensor(int64_t layer, std::string_view projection, std::string_view part) {
    return fmt::format("model.layers.{}.self_attn.{}.{}", layer, projection, part);
  }

  void scale_head(int64_t layer, int64_t head, int exponent) {
    const int64_t rows = spec_.head_dim, group = rows * spec_.q_per_kv();
    add(layer, "k_proj", head * rows, rows, exponent);
    add(layer, "q_proj", head * group, group, -exponent);
  }

  void add(int64_t layer, std::string_view projection, int64_t first, int64_t rows, int exponent) {
    edits_[tensor(layer, projection, "weight")].push_back({first, rows, exponent});
    if (!spec_.has_qkv_bias) return;
    edits_[tensor(layer, projection, "bias")].push_back({first, rows, exponent});
  }

  const ModelSpec& spec_;
  Edits edits_;
};

// Where a factor on the rows of Q and K would have no effect, or no rows of its own.
void expect_plain_projections(const PlantRequest& request, const ModelSpec& spec) {
  if (request.kind == PlantKind::kBenign) return;
  if (family_of(spec).has_fused_projections) {
    throw UnsupportedError(
        fmt::format("plant: model_type {}: Q, K and V lie in one tensor", spec.architecture));
  }
  if (!spec.has_qk_norm || request.side == 'v') return;
  throw UnsupportedError(fmt::format(
      "plant: model_type {}: keys pass a norm, which undoes any factor", spec.architecture));
}

void expect_fitting(const PlantRequest& request, const ModelSpec& spec, const fs::path& folder) {
  expect_plain_projections(request, spec);
  for (const int64_t layer : request.layers) {
    if (layer >= 0 && layer < spec.num_layers) continue;
    throw ValueError(
        fmt::format("plant: layers: expected 0 to {}, found {}", spec.num_layers - 1, layer));
  }
  if (request.side != 'k' && request.side != 'v') {
    throw ValueError(fmt::format("plant: side: expected k or v, found {}", request.side));
  }
  if (request.side == 'v' && request.kind != PlantKind::kClipping) {
    throw ValueError(fmt::format("plant: side v: {} has none", name(request.kind)));
  }
  if (!(request.size > 0 && request.size <= 448)) {
    throw ValueError(
        fmt::format("plant: size: expected above 0 and at most 448, found {}", request.size));
  }
  if (spec.latent) {
    throw ValueError(fmt::format("plant: {} caches a latent: expected keys and values per head",
                                 spec.architecture));
  }
  if (request.kind == PlantKind::kHeadDispersion && spec.num_kv_heads < 2) {
    throw ValueError("plant: head-dispersion: expected at least 2 KV heads, found 1");
  }
  for (const StoredScale& scale : read_scales(folder).scales) {
    if (scale.side != ScaleSide::kK && scale.side != ScaleSide::kV) continue;
    throw ValueError(fmt::format("{}: {} holds KV scales ({}), which would be wrong afterwards",
                                 folder.string(), scale.file, scale.tensor));
  }
}

std::vector<int64_t> layers_of(const PlantRequest& request, const ModelSpec& spec) {
  if (!request.layers.empty()) return request.layers;
  std::vector<int64_t> all(static_cast<size_t>(spec.num_layers));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Edits edits_of(const PlantRequest& request, const ModelSpec& spec) {
  EditList list(spec);
  for (const int64_t layer : layers_of(request, spec)) {
    if (request.kind == PlantKind::kHeadDispersion) list.disperse_heads(layer);
    if (request.kind != PlantKind::kClipping) continue;
    request.side == 'k' ? list.clip_keys(layer) : list.clip_values(layer);
  }
  return list.edits();
}

/// Multiplies values that lie in `bytes` in a floating type of that many bytes; returns the first
/// product that the type does not hold.
template <class Bits, class Decode, class Encode>
std::optional<double> scale_values(std::span<uint8_t> bytes, int exponent, Decode decode,
                                   Encode encode) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    const double product = std::ldexp(static_cast<double>(decode(bits)), exponent);
    bits = encode(static_cast<float>(product));
    if (!std::isfinite(product) || static_cast<double>(decode(bits)) != product) return product;
    std::memcpy(bytes.data() + at, &bits, sizeof bits);
  }
  return std::nullopt;
}

std::optional<double> scale_values(std::string_view dtype, std::span<uint8_t> bytes, int exponent) {
  if (dtype == "BF16") {
    return scale_values<uint16_t>(bytes, exponent, bf16::decode,
                                  [](float x) { return bf16::encode(x); });
  }
  if (dtype == "F16") return scale_values<uint16_t>(bytes, exponent, f16::decode, f16::encode);
  return scale_values<uint32_t>(
      bytes, exponent, [](uint32_t bits) { return std::bit_cast<float>(bits); },
      [](float x) { return std::bit_cast<uint32_t>(x); });
}

std::vector<uint8_t> rewritten(const StoredTensor& tensor, const std::vector<Edit>& edits) {
  std::vector<uint8_t> bytes(tensor.bytes.begin(), tensor.bytes.end());
  const std::string_view dtype = tensor.encoding->name;
  const size_t row_bytes = bytes.size() / static_cast<size_t>(tensor.num_rows());
  for (const Edit& edit : edits) {
    const auto rows = std::span(bytes).subspan(static_cast<size_t>(edit.first_row) * row_bytes,
                                               static_cast<size_t>(edit.num_rows) * row_bytes);
    const std::optional<double> lost = scale_values(dtype, rows, edit.exponent);
    if (!lost) continue;
    throw FormatError(fmt::format(
        "{}: tensor {}: a value times 2^{} is {:g}, which {} does not "
        "hold exactly",
        tensor.file->path().filename().string(), tensor.name, edit.exponent, *lost, dtype));
  }
  return bytes;
}

/// Overwrites a piece of a file that nobody else sees yet.
class Overwriter {
 public:
  explicit Overwriter(const fs::path& path) : path_(path), fd_(::open(path.c_str(), O_WRONLY)) {
    if (fd_ < 0) fail();
  }
  ~Overwriter() { ::close(fd_); }
  Overwriter(const Overwriter&) = delete;
  Overwriter& operator=(const Overwriter&) = delete;

  void put(std::span<const uint8_t> bytes, int64_t at) {
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), at);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) fail();
      bytes = bytes.subspan(static_cast<size_t>(put));
      at += put;
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw IoError(fmt::format("{}: cannot write: {}", path_.string(), std::strerror(errno)));
  }
  fs::path path_;
  int fd_;
};

/// Weights are linked where that can be; what a person edits by hand must not be the base model's.
void add_unchanged(const fs::path& file, const ExportFolder& folder) {
  if (file.extension() != ".safetensors") {
    return folder.add(file, file.filename().string(), true);
  }
  try {
    folder.add(file, file.filename().string(), false);
  } catch (const IoError&) {  // another file system
    folder.add(file, file.filename().string(), true);
  }
}

void add_shard(const SafetensorsFile& shard, const fs::path& path, const Edits& edits,
               const ExportFolder& folder) {
  const auto is_edited = [&](const StoredTensor& tensor) { return edits.contains(tensor.name); };
  if (std::ranges::none_of(shard.tensors(), is_edited)) return add_unchanged(path, folder);
  folder.add(path, path.filename().string(), true);
  Overwriter file(folder.path() / path.filename());
  for (const StoredTensor& tensor : shard.tensors()) {
    if (!is_edited(tensor)) continue;
    file.put(rewritten(tensor, edits.at(tensor.name)),
             tensor.bytes.data() - tensor.file->bytes().data());
  }
  file.sync();
}

std::string_view expected_outcome(const PlantRequest& request, const ModelSpec& spec) {
  switch (request.kind) {
    case PlantKind::kBenign:
      return "KEEP_SCALE_ONE";
    case PlantKind::kClipping:
      return "CALIBRATE_PER_TENSOR";
    case PlantKind::kHeadDispersion:
      return "STATIC_PER_HEAD";
    case PlantKind::kOffset:
      break;
  }
  // A quarter of the layers is the most that is kept in BF16.
  return std::ssize(layers_of(request, spec)) * 4 <= spec.num_layers ? "SELECTIVE_BF16"
                                                                     : "REJECT_FP8";
}

std::string plant_json(const PlantRequest& request, const Checkpoint& model) {
  nlohmann::ordered_json out = {
      {"plant", name(request.kind)},
      {"side", std::string(1, request.side)},
      {"layers", layers_of(request, model.spec())},
      {"base_model_sha256", model.content_sha256()},
      {"expected", expected_outcome(request, model.spec())},
  };
  if (request.kind == PlantKind::kOffset) out["size"] = request.size;
  return out.dump(1) + "\n";
}

}  // namespace

const std::vector<std::string>& plant_kinds() {
  static const std::vector<std::string> kinds = {"benign", "clipping", "head-dispersion", "offset"};
  return kinds;
}

std::string_view name(PlantKind kind) { return plant_kinds().at(static_cast<size_t>(kind)); }

PlantKind plant_kind(std::string_view name) {
  const auto found = std::ranges::find(plant_kinds(), name);
  if (found == plant_kinds().end()) {
    throw ValueError(
        fmt::format("plant: expected {}, found \"{}\"", fmt::join(plant_kinds(), ", "), name));
  }
  return static_cast<PlantKind>(found - plant_kinds().begin());
}

void write_plant(const PlantRequest& request) {
  const auto model = Checkpoint::open(request.model);
  if (model->gguf() != nullptr) {
    throw ValueError(fmt::format(
        "{}: expected a Hugging Face directory: the block scales of a quantized file do not hold "
        "the factors",
        request.model.string()));
  }
  expect_fitting(request, model->spec(), model->folder());
  const Edits edits = edits_of(request, model->spec());
  const ModelFiles files = read_hf_model(model->folder());
  ExportFolder folder(request.out);
  std::vector<std::string> written = {"kvscale_plant.json"};
  for (const auto& shard : files.shards) {
    written.push_back(shard->file_name());
    if (request.kind == PlantKind::kOffset) continue;
    add_shard(*shard, model->folder() / shard->file_name(), edits, folder);
  }
  if (request.kind == PlantKind::kOffset) {
    write_offset(files, model->folder(), layers_of(request, model->spec()), request.size, folder);
    written.push_back("config.json");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(model->folder())) {
    const std::string file = entry.path().filename().string();
    if (!entry.is_regular_file() || std::ranges::find(written, file) != written.end()) continue;
    add_unchanged(entry.path(), folder);
  }
  folder.write("kvscale_plant.json", plant_json(request, *model));
  folder.finish();
}

}  // namespace kv
