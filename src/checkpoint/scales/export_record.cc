#include "checkpoint/scales/export_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "checkpoint/byte_reader.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors_file.h"
#include "kvscale/error.h"
#include "tensor/mapped_file.h"
#include "text/sha256.h"

namespace kv {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr const char* kFormat = "kvscale-export";
constexpr int kSchema = 1;

std::string bits_text(float value) { return fmt::format("{:08x}", std::bit_cast<uint32_t>(value)); }

Ordered bits_list(const std::vector<float>& values) {
  Ordered list = Ordered::array();
  for (const float value : values) list.push_back(bits_text(value));
  return list;
}

std::vector<float> read_bits(const JsonFields& fields, const char* key) {
  const Json* list = fields.find(key);
  if (list == nullptr || !list->is_array()) fields.fail(key, "a list of hexadecimal F32");
  std::vector<float> values;
  for (const Json& item : *list) {
    if (!item.is_string()) fields.fail(key, "hexadecimal F32");
    const std::string text = item.get<std::string>();
    uint32_t bits = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
    if (text.size() != 8 || error != std::errc() || stop != text.data() + 8) {
      fields.fail(key, "8 hexadecimal digits each");
    }
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

std::string required_text(const JsonFields& fields, const char* key) {
  const auto found = fields.text(key);
  if (!found) fields.fail(key, "a string");
  return *found;
}

const Json& required_list(const JsonFields& fields, const char* key) {
  const Json* list = fields.find(key);
  if (list == nullptr || !list->is_array()) fields.fail(key, "a list");
  return *list;
}

ExportedScale read_scale(const JsonFields& entry) {
  ExportedScale scale;
  scale.layer = entry.required_integer("layer", {0, kNumLayersRange.most - 1});
  const std::string side = required_text(entry, "side");
  if (side != "k" && side != "v") entry.fail("side", "\"k\" or \"v\"");
  scale.side = side[0];
  scale.raw = read_bits(entry, "raw_bits");
  scale.used = read_bits(entry, "used_bits");
  return scale;
}

ExportRecord parse(const JsonFields& fields) {
  if (fields.text("format") != kFormat) fields.fail("format", fmt::format("{:?}", kFormat));
  if (fields.required_integer("schema", {0, 1000}) != kSchema) fields.fail("schema", "1");
  ExportRecord out;
  out.tool_version = required_text(fields, "kvscale");
  out.form = required_text(fields, "form");
  out.target = required_text(fields, "target");
  out.layout = required_text(fields, "layout");
  out.model_sha256 = required_text(fields, "model_sha256");
  out.scale_source = required_text(fields, "scale_source");
  out.scale_sha256 = required_text(fields, "scale_sha256");
  out.k_stage = required_text(fields, "k_stage");
  out.rounding = required_text(fields, "rounding");
  out.rope = required_text(fields, "rope");
  out.bf16_layers = fields.integers("bf16_layers", {0, kNumLayersRange.most - 1});
  for (const Json& word : required_list(fields, "launch")) {
    if (!word.is_string()) fields.fail("launch", "strings");
    out.launch.push_back(word.get<std::string>());
  }
  for (const Json& shard : required_list(fields, "model_files")) {
    const JsonFields entry(shard, fields.file(), "model_files.");
    const Json* bytes = entry.find("bytes");
    if (bytes == nullptr || !bytes->is_number_unsigned()) entry.fail("bytes", "a size");
    out.shards.push_back({required_text(entry, "file"), bytes->get<uint64_t>(),
                          required_text(entry, "header_sha256")});
  }
  for (const Json& scale : required_list(fields, "scales")) {
    out.scales.push_back(read_scale(JsonFields(scale, fields.file(), "scales.")));
  }
  return out;
}

std::string header_sha256(const MappedFile& file, const std::string& name) {
  ByteReader reader(file.bytes(), name);
  const auto size = reader.number<uint64_t>("the header's length");
  if (size > kMostSafetensorsHeaderBytes)
    throw FormatError(fmt::format("{}: header of {} bytes", name, size));
  const std::span<const uint8_t> text = reader.take(size, "the header");
  return sha256_hex({reinterpret_cast<const char*>(text.data()), text.size()});
}

}  // namespace

std::string export_record_text(const ExportRecord& r) {
  Ordered out = {{"format", kFormat},
                 {"schema", kSchema},
                 {"kvscale", r.tool_version},
                 {"form", r.form},
                 {"target", r.target},
                 {"layout", r.layout},
                 {"convention", "code = E4M3(value / scale), value = scale * code"},
                 {"fp8_format", "e4m3fn"},
                 {"k_stage", r.k_stage},
                 {"rounding", r.rounding},
                 {"q_scale", "none is written: queries are not quantized by these scales"},
                 {"draft_model", "untouched"},
                 {"model_sha256", r.model_sha256},
                 {"scale_source", r.scale_source},
                 {"scale_sha256", r.scale_sha256},
                 {"rope", r.rope},
                 {"bf16_layers", r.bf16_layers},
                 {"launch", r.launch},
                 {"model_files", Ordered::array()},
                 {"scales", Ordered::array()}};
  for (const ExportedShard& shard : r.shards) {
    out["model_files"].push_back(
        {{"file", shard.file}, {"bytes", shard.bytes}, {"header_sha256", shard.header_sha256}});
  }
  for (const ExportedScale& scale : r.scales) {
    out["scales"].push_back({{"layer", scale.layer},
                             {"side", std::string(1, scale.side)},
                             {"raw", scale.raw},
                             {"used", scale.used},
                             {"raw_bits", bits_list(scale.raw)},
                             {"used_bits", bits_list(scale.used)}});
  }
  return out.dump(1) + "\n";
}

std::optional<ExportRecord> read_export_record(const std::filesystem::path& folder) {
  const auto path = folder / kExportRecordFile;
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json json = parse_json(read_text_file(path), kExportRecordFile);
  return parse(JsonFields(json, kExportRecordFile));
}

std::vector<ExportedShard> shards_of(const std::filesystem::path& folder) {
  std::vector<ExportedShard> shards;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const MappedFile file(entry.path());
    const std::string name = entry.path().filename().string();
    shards.push_back({name, file.bytes().size(), header_sha256(file, name)});
  }
  std::ranges::sort(shards, {}, &ExportedShard::file);
  return shards;
}

}  // namespace kv
