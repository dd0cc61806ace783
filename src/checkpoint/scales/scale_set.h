#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/scales/declaration.h"
#include "checkpoint/scales/export_record.h"
#include "checkpoint/scales/kv_geometry.h"

namespace kv {

/// A larger scale says that a cache held values of 4.5 million, which none does.
inline constexpr float kLargestScale = 1e4f;

/// What a scale belongs to. Every scale is what a code is multiplied by: code = E4M3(x / scale).
enum class ScaleSide : uint8_t { kK, kV, kQ, kProb };

/// "k", "v", "q", "prob"
std::string_view name(ScaleSide side);

/// One scale, or one per head, where it lies. A tensor that holds one number for K and V is listed
/// twice, once per side.
struct StoredScale {
  int layer = 0;
  ScaleSide side = ScaleSide::kK;
  std::vector<float> values;   // row-major, widened to F32
  std::vector<int64_t> shape;  // as in the file
  std::string dtype;           // "F32", "BF16", "F16", "F64", "JSON", "ONNX"
  std::string file;            // without its folder
  std::string tensor;          // its name there, or the path within a JSON file
  std::string spelling;    // the part of the name that was recognised: "self_attn.k_proj.k_scale"
  bool is_shared = false;  // one number for K and V
  int rank = -1;           // tensor-parallel rank that it holds for; -1 = all
};

/// A tensor that looks like a KV scale and is not one that any reader takes.
struct UnreadScale {
  std::string file, tensor, why;
};

/// Zero points and means beside scales: their presence changes what a scale means.
struct ScaleCompanion {
  enum class Kind : uint8_t { kZeroPoint, kBias };
  Kind kind = Kind::kZeroPoint;
  int layer = 0;
  std::string file, tensor;
  bool is_zero = true;  // of zero points; means are not read
};

/// What is known of the files around the scales.
struct ScaleFiles {
  std::vector<std::string> read;          // in the order of their names
  std::vector<std::string> not_in_index;  // hold scales, and no index names them
  bool has_index = false;
  bool has_single_beside_index = false;  // model.safetensors and an index
  std::vector<std::string> index_lies;   // tensors that the index places in another file
  size_t num_tensors = 0;
  size_t num_weight_scales = 0;  // weight_scale, input_scale, ...: not the cache's
};

/// Largest magnitudes that small tensors of the model tell in advance, per layer; 0 = not known.
struct KeyRange {
  int layer = 0;
  double k_norm_bound = 0;   // no K of this layer can be larger: sqrt(head_dim) * max |weight|
  double k_bias_max = 0;     // largest |k_proj.bias|
  double k_bias_median = 0;  // of its magnitudes
};

/// Every scale of a checkpoint, with what its files say about how it was made.
struct ScaleSet {
  std::filesystem::path path;
  KvGeometry geometry;
  KvDeclaration declared;
  std::vector<StoredScale> scales;  // by layer, side, rank
  std::vector<UnreadScale> unread;
  std::vector<ScaleCompanion> companions;
  std::vector<int> owner_layers;  // layers that store K and V, ascending
  std::vector<KeyRange> key_ranges;
  ScaleFiles files;
  std::optional<ExportRecord> record;  // of a directory that kvscale exported
  std::vector<std::string> notes;

  /// The first scale of a layer and side that holds for `rank`; null when there is none.
  const StoredScale* find(int layer, ScaleSide side, int rank = 0) const;

  /// The layer whose cache a layer reads: itself, but for layers that share another's.
  int cache_layer(int layer) const;
};

enum class ScaleShape : uint8_t { kPerTensor, kPerKvHead, kPerQHead, kOther };

/// What the number of values means in this model. With as many query heads as KV heads, per KV
/// head.
ScaleShape scale_shape(const StoredScale& scale, const KvGeometry& geometry);

/// Reads all scales below `path`: a Hugging Face or TensorRT-LLM directory, a Mistral one, one
/// .safetensors file, SGLang's JSON, or an ONNX file (or a directory of them) of TensorRT Edge-LLM.
/// Of safetensors files only headers and the few bytes of scales are touched. Throws IoError,
/// FormatError for files that break their format; what is merely suspicious is left to diagnose().
ScaleSet read_scales(const std::filesystem::path& path);

}  // namespace kv
