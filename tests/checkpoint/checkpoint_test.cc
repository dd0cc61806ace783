#include "checkpoint/checkpoint.h"

#include <cstring>
#include <thread>

#include "checkpoint/architecture.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using fixtures::GgufWriter;
using fixtures::SafetensorsWriter;
using fixtures::TinyModel;

const fs::path kGolden = fs::path(KV_SOURCE_DIR) / "tests/golden/checkpoint";

std::vector<float> read_all(const Checkpoint& checkpoint, const std::string& name) {
  const std::vector<int64_t> shape = checkpoint.shape(name);
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  checkpoint.read_f32(name, 0, shape[0], values.data());
  return values;
}

void expect_same_weights(const Checkpoint& checkpoint, const TinyModel& model) {
  for (const RequiredTensor& tensor : required_tensors(model.spec)) {
    ASSERT_TRUE(checkpoint.has(tensor.name)) << tensor.name;
    EXPECT_EQ(checkpoint.shape(tensor.name), tensor.shape) << tensor.name;
    EXPECT_EQ(read_all(checkpoint, tensor.name), model.weights.at(tensor.name)) << tensor.name;
  }
}

class CheckpointTest : public testing::Test {
 protected:
  fs::path write_gguf(const GgufWriter& writer) {
    fixtures::write_file(folder_ / "tiny.gguf", writer.bytes());
    return folder_ / "tiny.gguf";
  }
  fixtures::ScratchFolder folder_;
};

// The package's writer, its permutation and transformers' config.json on one side each.
TEST_F(CheckpointTest, FilesOfOtherWritersHoldTheSameModel) {
  const auto gguf = Checkpoint::open(kGolden / "tiny.gguf");
  const auto hf = Checkpoint::open(kGolden / "tiny_hf");
  EXPECT_EQ(gguf->spec().head_dim, 8);
  EXPECT_EQ(gguf->spec().num_kv_heads, 2);
  EXPECT_EQ(gguf->spec().q_per_kv(), 2);
  EXPECT_EQ(hf->spec().rope.theta, 5e5);
  EXPECT_EQ(hf->spec().eos_ids, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(gguf->spec().eos_ids, hf->spec().eos_ids);
  EXPECT_EQ(gguf->spec().tied_embeddings, hf->spec().tied_embeddings);
  for (const RequiredTensor& tensor : required_tensors(hf->spec())) {
    EXPECT_EQ(read_all(*gguf, tensor.name), read_all(*hf, tensor.name)) << tensor.name;
  }
  EXPECT_TRUE(gguf->unread().empty());
  EXPECT_TRUE(hf->unread().empty());
}

TEST_F(CheckpointTest, GgufGivesTheModelBack) {
  for (const std::string architecture : {"llama", "qwen2"}) {
    for (const std::string dtype : {"F32", "F16", "BF16"}) {
      const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(architecture), 1);
      const auto checkpoint = Checkpoint::open(write_gguf(fixtures::gguf_model(model, dtype)));
      expect_same_weights(*checkpoint, model);
      EXPECT_EQ(checkpoint->spec().has_qkv_bias, architecture == "qwen2");
    }
  }
}

TEST_F(CheckpointTest, HfDirectoryGivesTheModelBack) {
  for (const std::string architecture : {"llama", "qwen2"}) {
    for (const std::string dtype : {"F32", "F16", "BF16"}) {
      const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(architecture), 2);
      fixtures::write_hf_model(folder_.path(), model, dtype);
      expect_same_weights(*Checkpoint::open(folder_.path()), model);
    }
  }
}

TEST_F(CheckpointTest, SafetensorsPathMeansItsFolder) {
  const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 2);
  fixtures::write_hf_model(folder_.path(), model);
  expect_same_weights(*Checkpoint::open(folder_ / "model.safetensors"), model);
  fs::copy(folder_ / "model.safetensors", folder_ / "other.safetensors");
  EXPECT_THROW(Checkpoint::open(folder_ / "other.safetensors"), FormatError);
}

// Llama with biases on q, k and v in GGUF: their rows are interleaved as the weights' are.
TEST_F(CheckpointTest, LlamaBiasesAreReadAndUnpermuted) {
  ModelSpec spec = fixtures::tiny_spec();
  spec.has_qkv_bias = true;
  spec.has_o_bias = true;
  const TinyModel model = fixtures::make_tiny_model(spec, 3);
  expect_same_weights(*Checkpoint::open(write_gguf(fixtures::gguf_model(model))), model);
  fixtures::write_hf_model(folder_.path(), model);
  expect_same_weights(*Checkpoint::open(folder_.path()), model);
}

TEST_F(CheckpointTest, AnyRangeOfRowsIsTheSame) {
  const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 4);
  const auto checkpoint = Checkpoint::open(write_gguf(fixtures::gguf_model(model, "F32")));
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const std::vector<float>& all = model.weights.at(name);
  const int64_t columns = 24;
  for (int64_t first = 0; first <= 32; ++first) {
    for (int64_t rows = 0; first + rows <= 32; ++rows) {
      std::vector<float> part(static_cast<size_t>(rows * columns));
      checkpoint->read_f32(name, first, rows, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first * columns));
      std::vector<uint16_t> halves(part.size());
      checkpoint->read_bf16(name, first, rows, halves.data());
      for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(halves[i], bf16::encode(part[i]));
    }
  }
}

TEST_F(CheckpointTest, RowsThatAreNotThereAreRefused) {
  const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 4);
  const auto checkpoint = Checkpoint::open(write_gguf(fixtures::gguf_model(model)));
  float value = 0;
  const auto refused = [&](std::string_view name, int64_t first, int64_t rows) {
    EXPECT_THROW(checkpoint->read_f32(name, first, rows, &value), ValueError)
        << name << " " << first << " " << rows;
  };
  refused("model.norm.weight", 0, 25);
  refused("model.norm.weight", 24, 1);
  refused("model.norm.weight", -1, 1);
  refused("model.norm.weight", 1, -1);
  refused("model.norm.weight", 1, INT64_MAX);
  refused("model.norm.weight", INT64_MAX, 1);
  refused("blk.0.attn_q.weight", 0, 1);  // GGUF's names are not the ones
  EXPECT_TRUE(checkpoint->unread().size() == model.weights.size());
}

TEST_F(CheckpointTest, ThreadsReadTheSame) {
  const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 5);
  const auto checkpoint = Checkpoint::open(write_gguf(fixtures::gguf_model(model)));
  const std::string hash = Checkpoint::open(folder_ / "tiny.gguf")->content_sha256();
  std::vector<std::thread> threads;
  std::array<bool, 4> same{};
  for (size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      bool equal = true;
      for (const auto& [name, values] : model.weights) {
        equal = equal && read_all(*checkpoint, name) == values;
        checkpoint->drop(name);
      }
      same[t] = equal && checkpoint->content_sha256() == hash;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool equal : same) EXPECT_TRUE(equal);
}

TEST_F(CheckpointTest, UnreadShrinksAsTensorsAreRead) {
  const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 6);
  const auto checkpoint = Checkpoint::open(write_gguf(fixtures::gguf_model(model)));
  EXPECT_EQ(checkpoint->unread().size(), model.weights.size());
  EXPECT_EQ(
      checkpoint->unread_by_prefix(),
      (std::vector<std::pair<std::string, size_t>>{
          {"blk", 18}, {"output.weight", 1}, {"output_norm.weight", 1}, {"token_embd.weight", 1}}));
  for (const auto& [name, values] : model.weights) {
    if (name != "model.layers.1.mlp.up_proj.weight") read_all(*checkpoint, name);
  }
  EXPECT_EQ(checkpoint->unread(), std::vector<std::string>{"blk.1.ffn_up.weight"});
}

TEST_F(CheckpointTest, HashDoesNotDependOnTheContainersOrder) {
  const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 7);
  fixtures::write_hf_model(folder_.path(), model);
  const std::string hash = Checkpoint::open(folder_.path())->content_sha256();
  EXPECT_EQ(hash.size(), 64u);

  SafetensorsWriter writer = fixtures::hf_weights(model);
  std::reverse(writer.tensors.begin(), writer.tensors.end());
  writer.tensors.push_back({"model.layers.0.self_attn.k_scale", "F32", {1}, "abcd"});
  fixtures::write_file(folder_ / "model.safetensors", writer.bytes());
  EXPECT_EQ(Checkpoint::open(folder_.path())->content_sha256(), hash);
}

TEST_F(CheckpointTest, HashKnowsEveryBitOfTheModel) {
  const TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 7);
  fixtures::write_hf_model(folder_.path(), model);
  const std::string hash = Checkpoint::open(folder_.path())->content_sha256();

  TinyModel other = model;
  other.weights["model.layers.1.mlp.down_proj.weight"].back() += 1.0f;
  fixtures::write_hf_model(folder_.path(), other);
  EXPECT_NE(Checkpoint::open(folder_.path())->content_sha256(), hash);

  other = model;
  other.spec.rope.theta = 10001.0;
  fixtures::write_hf_model(folder_.path(), other);
  EXPECT_NE(Checkpoint::open(folder_.path())->content_sha256(), hash);

  other = model;
  other.spec.name = "another name";
  other.spec.eos_ids = {2, 5};
  fixtures::write_hf_model(folder_.path(), other);
  EXPECT_EQ(Checkpoint::open(folder_.path())->content_sha256(), hash);
}

TEST_F(CheckpointTest, NotesSayWhatIsStored) {
  TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 8);
  EXPECT_EQ(
      Checkpoint::open(write_gguf(fixtures::gguf_model(model)))->notes(),
      (std::vector<std::string>{"weights are stored as F16 (16), F32 (5)",
                                "output.weight is there and is the head, not token_embd.weight"}));
  fixtures::write_hf_model(folder_.path(), model);
  EXPECT_TRUE(Checkpoint::open(folder_.path())->notes().empty());
}

TEST_F(CheckpointTest, PathsThatAreNoModel) {
  EXPECT_THROW(Checkpoint::open(folder_ / "none.gguf"), IoError);
  const auto refusal = [&](const fs::path& path) -> std::string {
    try {
      Checkpoint::open(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "read";
  };
  const std::string name = folder_.path().filename();
  EXPECT_EQ(refusal(folder_.path()), name + ": expected config.json, found none");
  fixtures::write_file(folder_ / "a.gguf", "GGUF");
  EXPECT_EQ(refusal(folder_.path()),
            name + ": expected config.json, found none; found a.gguf: name that file");
  fs::create_directory(folder_ / "config.json");
  EXPECT_NE(refusal(folder_.path()), "read");
}

}  // namespace
}  // namespace kv
