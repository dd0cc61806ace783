#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kv {

/// Scales of one layer and side as they were exported: one value per tensor or one per head.
struct ExportedScale {
  int layer = 0;
  char side = 'k';          // 'k' or 'v'
  std::vector<float> raw;   // as they came
  std::vector<float> used;  // as they were written

  bool operator==(const ExportedScale&) const = default;
};

/// A shard of the model that was exported, cheap to compare: its size and its header.
struct ExportedShard {
  std::string file;
  uint64_t bytes = 0;
  std::string header_sha256;

  bool operator==(const ExportedShard&) const = default;
};

/// What kvscale writes beside exported scales (kvscale_export.json): what they are, where they come
/// from, and what the model was, so that reading back can be held against it.
struct ExportRecord {
  std::string tool_version;
  std::string form;          // name of an ExportForm
  std::string target;        // "vllm:flash_attn3"
  std::string layout;        // "fp8_tensor", "fp8_head", "fp8_scale1"
  std::string model_sha256;  // over the weights' contents; empty = not known
  std::string scale_source;  // where the scales came from
  std::string scale_sha256;  // of that file; empty for a directory
  std::string k_stage;       // "post_rope", "pre_rope", "unknown"
  std::string rounding;      // "up to BF16", "none"
  std::string rope;          // KvGeometry::rope of the model
  std::vector<int> bf16_layers;
  std::vector<std::string> launch;  // words of the engine's command line
  std::vector<ExportedShard> shards;
  std::vector<ExportedScale> scales;

  bool operator==(const ExportRecord&) const = default;
};

inline constexpr const char* kExportRecordFile = "kvscale_export.json";

/// The record's text, with the bits of every scale in hexadecimal beside its decimal form.
std::string export_record_text(const ExportRecord& record);

/// The record of a directory; nullopt when it has none. Throws FormatError for one that is broken.
std::optional<ExportRecord> read_export_record(const std::filesystem::path& folder);

/// Size and header of every safetensors file of a folder, in the order of names.
std::vector<ExportedShard> shards_of(const std::filesystem::path& folder);

}  // namespace kv
