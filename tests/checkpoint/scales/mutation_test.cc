// Broken files of every kind: each must be read or refused with a kv::Error, and what was read must
// pass through the diagnosis without harm.

#include <gtest/gtest.h>

#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/sglang_json.h"
#include "kvscale/error.h"
#include "tests/checkpoint/scales/onnx_writer.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

using fixtures::ScaleFolder;

constexpr int kMutants = 2000;

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string mutate(std::string bytes) {
    const size_t changes = 1 + below(3);
    for (size_t i = 0; i < changes && !bytes.empty(); ++i) change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

  void change(std::string& bytes) {
    const size_t at = below(bytes.size());
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.erase(at, 1 + below(24));
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(32)));
        break;
      default:
        bytes[at] = "0123456789-e[]{}\",:\xff"[below(21)];
    }
  }

  std::mt19937 random_;
};

/// How many mutants of a file were read; anything but a kv::Error fails the test.
int read_mutants(const std::filesystem::path& file, const std::filesystem::path& path,
                 const std::string& whole, uint32_t seed) {
  Mutator mutator(seed);
  int read = 0;
  for (int i = 0; i < kMutants; ++i) {
    fixtures::write_file(file, mutator.mutate(whole));
    try {
      const Diagnosis d = diagnose(read_scales(path));
      EXPECT_FALSE(d.summary.empty());
      ++read;
    } catch (const Error& error) {
      EXPECT_STRNE(error.what(), "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << "mutant " << i << ": " << error.what();
    }
  }
  fixtures::write_file(file, whole);
  return read;
}

TEST(ScaleMutation, HeadersConfigurationsIndexesAndRecords) {
  ScaleFolder folder(2);
  folder.scales("self_attn.k_scale", "self_attn.v_scale");
  folder.tensor(folder.module(0) + ".k_zero_point", "F8_E4M3", {1}, {0});
  folder.tensor(folder.module(0) + ".k_norm.weight", "BF16", {64}, std::vector<float>(64, 1));
  folder.write(fixtures::kCtTensor);
  const auto index = folder.path() / "model.safetensors.index.json";
  fixtures::write_file(index,
                       R"({"metadata":{"total_size":1},"weight_map":{"a":"model.safetensors"}})");
  ExportRecord record;
  record.scales = {{0, 'k', {0.5f}, {0.5f}}};
  record.shards = {{"model.safetensors", 10, "ab"}};
  fixtures::write_file(folder.path() / kExportRecordFile, export_record_text(record));
  uint32_t seed = 20261130;
  for (const char* name :
       {"model.safetensors", "config.json", "model.safetensors.index.json", kExportRecordFile}) {
    SCOPED_TRACE(name);
    const auto file = folder.path() / name;
    const int read = read_mutants(file, folder.path(), fixtures::read_file(file), ++seed);
    EXPECT_GT(read, 0);
    EXPECT_LT(read, kMutants);
  }
}

TEST(ScaleMutation, SideFilesOfModelOptAndBlocksOfQuark) {
  ScaleFolder folder(1);
  folder.scales("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale");
  folder.write();
  const auto file = folder.path() / "hf_quant_config.json";
  const std::string side = R"({"producer":{"name":"modelopt","version":"0.43.0"},"quantization":
      {"quant_algo":"FP8","kv_cache_quant_algo":"FP8","exclude_modules":["lm_head"]}})";
  EXPECT_LT(read_mutants(file, folder.path(), side, 7), kMutants);
  std::filesystem::remove(file);
  const std::string quark = folder.config(R"({"quant_method":"quark","kv_cache_quant_config":
      {"*k_proj":{"output_tensors":{"dtype":"fp8_e4m3","qscheme":"per_tensor","is_dynamic":false}}}})");
  EXPECT_LT(read_mutants(folder.path() / "config.json", folder.path(), quark, 8), kMutants);
}

TEST(ScaleMutation, JsonAndOnnx) {
  fixtures::ScratchFolder folder;
  const auto json = folder / "kv_cache_scales.json";
  EXPECT_LT(read_mutants(json, json, sglang_json_text("llama", {{0.5f, 0.03f}}), 9), kMutants);
  const auto onnx = folder / "model.onnx";
  const std::string graph = fixtures::onnx_model(
      {fixtures::onnx_node("/layers.3/attn", {"q", "l3.k_v_scale_quant_orig"}, {}),
       fixtures::onnx_tensor("l3.k_v_scale_quant_orig", {0.5f, 0.25f}),
       fixtures::onnx_node("attn_4", {"q"}, {1.0f, 0.5f, 0.125f})});
  const int read = read_mutants(onnx, onnx, graph, 10);
  EXPECT_GT(read, 0);
  EXPECT_LT(read, kMutants);
}

}  // namespace
}  // namespace kv
