#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// A rewrite of a model's weights that changes what FP8 can hold of its keys or values and nothing
/// else, so that the right verdict is known beforehand. Every factor is a power of two and every
/// product exact: the model with a BF16 cache computes the same bits. But for the offset, which is
/// a sum: there the control may differ in its last bits, and by what RoPE turns of a constant.
enum class PlantKind : uint8_t {
  kBenign,          // nothing: scale 1.0 stays right
  kClipping,        // K times 2^8, Q by its inverse; or V and the columns of O: beyond 448
  kHeadDispersion,  // K of KV head 0 times 2^10, of head 1 times 2^-10, Q of their groups inversely
  kOffset,  // a constant on slow channels of K, which the softmax hardly sees: no scale helps
};

/// "benign", "clipping", "head-dispersion", "offset".
const std::vector<std::string>& plant_kinds();
PlantKind plant_kind(std::string_view name);  // throws ValueError with the names that exist
std::string_view name(PlantKind kind);

struct PlantRequest {
  std::filesystem::path model;  // a Hugging Face directory (llama, qwen2) without KV scales
  std::filesystem::path out;    // must not exist
  PlantKind kind = PlantKind::kBenign;
  std::vector<int64_t> layers;  // empty: all
  char side = 'k';              // clipping: 'k' or 'v'
  double size = 192;            // offset: of the constant, in what the keys are measured in
};

/// Writes `out`: the model with the rewrite, and kvscale_plant.json, which says what was done.
/// Weights that do not change are linked where the file system allows, all else is copied. All of
/// it appears at once or not at all. Throws ValueError for a request that does not fit the model,
/// FormatError naming file and tensor where a product is not exact in the tensor's dtype, IoError.
void write_plant(const PlantRequest& request);

}  // namespace kv
