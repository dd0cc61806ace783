#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "numeric/bf16.h"

namespace kv {

/// Rewrites of the built-in model that change what FP8 can hold and nothing else: all factors are
/// powers of two, so the control computes the same bits.
class Plant {
 public:
  Plant()
      : folder_(std::filesystem::temp_directory_path() /
                ("kvscale-plant-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const std::filesystem::path tiny = std::filesystem::path(KV_SOURCE_DIR) / "models/tiny";
    for (const char* file :
         {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
      std::filesystem::copy_file(tiny / file, folder_ / file);
    }
    std::ifstream in(tiny / "model.safetensors", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }
  ~Plant() { std::filesystem::remove_all(folder_); }
  Plant(const Plant&) = delete;
  Plant& operator=(const Plant&) = delete;

  /// Multiplies rows [first, first + count) of a BF16 matrix with `columns` columns by a power of
  /// two.
  void scale_rows(const std::string& name, int64_t first, int64_t count, int64_t columns,
                  float factor) {
    uint16_t* data = tensor(name);
    for (int64_t i = first * columns; i < (first + count) * columns; ++i) {
      data[i] = bf16::encode(bf16::decode(data[i]) * factor);
    }
  }

  /// The plant "clipping" of evaluation 9.1: keys of one layer times 2^8, queries by its inverse.
  void clip_keys(int layer) {
    const std::string attention = "model.layers." + std::to_string(layer) + ".self_attn.";
    scale_rows(attention + "k_proj.weight", 0, 128, 256, 256.0f);
    scale_rows(attention + "q_proj.weight", 0, 256, 256, 1.0f / 256.0f);
  }

  /// "head dispersion": KV head 0 times 2^10, KV head 1 times 2^-6, the queries of each group
  /// inversely.
  void disperse_heads(int layer, int up, int down) {
    const std::string attention = "model.layers." + std::to_string(layer) + ".self_attn.";
    scale_rows(attention + "k_proj.weight", 0, 64, 256, std::ldexp(1.0f, up));
    scale_rows(attention + "k_proj.weight", 64, 64, 256, std::ldexp(1.0f, -down));
    scale_rows(attention + "q_proj.weight", 0, 128, 256, std::ldexp(1.0f, -up));
    scale_rows(attention + "q_proj.weight", 128, 128, 256, std::ldexp(1.0f, down));
  }

  /// The directory, with what was planted so far.
  const std::filesystem::path& write() const {
    std::ofstream(folder_ / "model.safetensors", std::ios::binary)
        .write(bytes_.data(), std::ssize(bytes_));
    return folder_;
  }

  std::shared_ptr<const Model> load() const { return Model::load(Checkpoint::open(write())); }

 private:
  uint16_t* tensor(const std::string& name) {
    uint64_t header_bytes;
    std::memcpy(&header_bytes, bytes_.data(), 8);
    const std::string header(bytes_.data() + 8, header_bytes);
    const size_t entry = header.find("\"" + name + "\"");
    if (entry == std::string::npos) throw std::runtime_error("no tensor " + name);
    const size_t offsets = header.find("\"data_offsets\"", entry);
    const size_t begin = header.find('[', offsets) + 1;
    return reinterpret_cast<uint16_t*>(bytes_.data() + 8 + header_bytes +
                                       std::stoull(header.substr(begin)));
  }

  std::filesystem::path folder_;
  std::string bytes_;
};

}  // namespace kv
