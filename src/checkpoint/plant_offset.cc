#include "checkpoint/plant_offset.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "checkpoint/json.h"
#include "checkpoint/scales/safetensors_writer.h"
#include "kvscale/error.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr double kMostTurn = 0.1;  // radians: a constant stays one to 0.5 %
constexpr double kOverPositions = 2048;

std::vector<float> key_bias(const ModelSpec& spec, double size) {
  std::vector<float> out(static_cast<size_t>(spec.num_kv_heads) * spec.head_dim);
  const std::vector<int64_t> channels = slow_channels(spec);
  for (int64_t head = 0; head < spec.num_kv_heads; ++head) {
    for (size_t i = 0; i < channels.size(); ++i) {
      const double value = i % 2 == 0 ? size : -size;
      out[static_cast<size_t>(head * spec.head_dim + channels[i])] = static_cast<float>(value);
    }
  }
  return out;
}

/// All biases that a llama model with attention_bias has.
std::vector<SafetensorsEntry> biases(const ModelSpec& spec, std::span<const int64_t> layers,
                                     double size) {
  const int64_t q_rows = int64_t{spec.num_q_heads} * spec.head_dim;
  const int64_t kv_rows = int64_t{spec.num_kv_heads} * spec.head_dim;
  std::vector<SafetensorsEntry> out;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const auto add = [&](const char* projection, std::vector<float> values) {
      out.push_back({fmt::format("model.layers.{}.self_attn.{}.bias", layer, projection),
                     {std::ssize(values)},
                     std::move(values)});
    };
    const auto zeros = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n)); };
    const bool is_planted = std::ranges::find(layers, layer) != layers.end();
    add("q_proj", zeros(q_rows));
    add("k_proj", is_planted ? key_bias(spec, size) : zeros(kv_rows));
    add("v_proj", zeros(kv_rows));
    add("o_proj", zeros(spec.hidden_size));
  }
  return out;
}

}  // namespace

std::vector<int64_t> slow_channels(const ModelSpec& spec) {
  const std::vector<double> turns = inv_freq(spec.rope, spec.head_dim);
  const double slowest = *std::ranges::min_element(turns);
  std::vector<int64_t> out;
  for (size_t half = 0; half < 2; ++half) {
    for (size_t i = 0; i < turns.size(); ++i) {
      if (turns[i] * kOverPositions < kMostTurn || turns[i] == slowest) {
        out.push_back(static_cast<int64_t>(half * turns.size() + i));
      }
    }
  }
  return out;
}

void write_offset(const ModelFiles& files, const fs::path& model, std::span<const int64_t> layers,
                  double size, const ExportFolder& out) {
  const ModelSpec& spec = files.spec;
  if (spec.architecture != "llama" || spec.has_qkv_bias || files.shards.size() != 1) {
    throw ValueError(fmt::format(
        "plant: offset: expected a llama model without biases in one file, found {}{}, {} files",
        spec.architecture, spec.has_qkv_bias ? " with biases" : "", files.shards.size()));
  }
  const std::string file = files.shards.front()->file_name();
  copy_safetensors_with(model / file, biases(spec, layers, size), out.path() / file);
  auto config = nlohmann::ordered_json::parse(read_text_file(model / "config.json"));
  config["attention_bias"] = true;
  out.write("config.json", config.dump(2) + "\n");
}

}  // namespace kv
