#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/calibration.h"
#include "checkpoint/load_tokenizer.h"
#include "checkpoint/plant.h"
#include "model/model.h"
#include "numeric/bf16.h"
#include "tests/checkpoint/writers.h"

namespace kv {

/// The source of a calibration whose model has a name.
inline CalibrationSource named_source() {
  CalibrationSource source;
  source.model_sha256 = "model";
  return source;
}

/// The built-in model with one of the product's own plants.
class PlantedFolder {
 public:
  explicit PlantedFolder(PlantKind kind, char side = 'k') {
    write_plant({.model = std::filesystem::path(KV_SOURCE_DIR) / "models/tiny",
                 .out = path(),
                 .kind = kind,
                 .layers = {},
                 .side = side});
  }

  std::filesystem::path path() const { return folder_ / "model"; }
  std::shared_ptr<const Model> load() const { return Model::load(Checkpoint::open(path())); }

 private:
  fixtures::ScratchFolder folder_;
};

/// The built-in model with weights that a test rewrites.
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

/// The built-in model, unchanged, loaded once for all tests that only ask it.
struct Tiny {
  Plant plant;
  std::shared_ptr<const Model> model = plant.load();
  Tokenizer tokenizer = load_tokenizer(model->checkpoint());
};

inline Tiny& tiny() {
  static Tiny loaded;
  return loaded;
}

}  // namespace kv
