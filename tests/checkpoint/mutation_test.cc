// Broken files, thousands of them from a fixed seed: each must load or be refused with a kv::Error.
// What loads is read to its end, so that sizes that lie would show (under ASan for certain).

#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/load_tokenizer.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

constexpr int kMutants = 3000;

constexpr uint64_t kHugeValues[] = {0,
                                    1,
                                    0x7f,
                                    0xff,
                                    0xffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    0x7fffffffffffffff,
                                    0x8000000000000000,
                                    0xffffffffffffffff,
                                    0x4000000000000000,
                                    0x1000000000000001};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  // One to three changes, most of them in the first `header_bytes`.
  std::string mutate(std::string bytes, size_t header_bytes) {
    const size_t changes = 1 + below(3);
    for (size_t i = 0; i < changes && !bytes.empty(); ++i) change(bytes, header_bytes);
    return bytes;
  }

  size_t below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

 private:
  void change(std::string& bytes, size_t header_bytes) {
    const size_t reach = below(8) == 0 ? bytes.size() : std::min(header_bytes, bytes.size());
    const size_t at = below(reach);
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        overwrite(bytes, at, below(2) == 0 ? 4 : 8);
        break;
      case 3:
        bytes.erase(at, 1 + below(16));
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(reach), 1 + below(32)));
        break;
      default:
        bytes[at] = static_cast<char>(below(256));
    }
  }

  void overwrite(std::string& bytes, size_t at, size_t width) {
    const uint64_t value = kHugeValues[below(std::size(kHugeValues))];
    for (size_t i = 0; i < width && at + i < bytes.size(); ++i) {
      bytes[at + i] = static_cast<char>(value >> (8 * i));
    }
  }

  std::mt19937 random_;
};

void read_everything(const Checkpoint& checkpoint) {
  for (const std::string& name :
       {std::string("model.embed_tokens.weight"),
        std::string("model.layers.0.self_attn.q_proj.weight"), std::string("model.norm.weight")}) {
    const std::vector<int64_t> shape = checkpoint.shape(name);
    const int64_t columns = shape.size() > 1 ? shape[1] : 1;
    std::vector<uint16_t> row(static_cast<size_t>(columns));
    for (int64_t r = 0; r < shape[0]; ++r) checkpoint.read_bf16(name, r, 1, row.data());
    checkpoint.drop(name);
  }
  EXPECT_FALSE(checkpoint.content_sha256().empty());
  EXPECT_FALSE(checkpoint.unread().empty());
  EXPECT_EQ(inv_freq(checkpoint.spec().rope, checkpoint.spec().head_dim).size(),
            static_cast<size_t>(checkpoint.spec().head_dim / 2));
}

// Whether it loads; anything but a kv::Error fails the test.
bool loads(const std::filesystem::path& path, bool with_tokenizer, int mutant) {
  try {
    const auto checkpoint = Checkpoint::open(path);
    read_everything(*checkpoint);
    if (with_tokenizer) {
      EXPECT_GT(load_tokenizer(*checkpoint).vocab_size(), 0);
    }
    return true;
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
  } catch (const std::exception& error) {
    ADD_FAILURE() << "mutant " << mutant << ": " << error.what();
  }
  return false;
}

void add_vocabulary(fixtures::GgufWriter& writer, int vocab_size) {
  std::vector<std::string> tokens = {"<|end|>", "<s>", "</s>"};
  while (static_cast<int>(tokens.size()) < vocab_size) {
    tokens.emplace_back(1, static_cast<char>('!' + tokens.size()));
  }
  writer.set_text("tokenizer.ggml.model", "gpt2").set_text("tokenizer.ggml.pre", "qwen2");
  writer.set_texts("tokenizer.ggml.tokens", tokens);
  std::vector<int32_t> types(tokens.size(), 1);
  types[0] = types[1] = types[2] = 3;
  writer.set_integers("tokenizer.ggml.token_type", types);
  writer.set_texts("tokenizer.ggml.merges", {});
}

TEST(Mutation, Gguf) {
  const fixtures::ScratchFolder folder;
  const auto path = folder / "tiny.gguf";
  fixtures::GgufWriter writer =
      fixtures::gguf_model(fixtures::make_tiny_model(fixtures::tiny_spec(), 1));
  add_vocabulary(writer, 40);
  const std::string whole = writer.bytes();
  size_t data_bytes = 0;
  for (const auto& tensor : writer.tensors) data_bytes += tensor.data.size();
  fixtures::write_file(path, whole);
  ASSERT_TRUE(loads(path, false, -1));

  Mutator mutator(20261130);
  int loaded = 0;
  for (int i = 0; i < kMutants; ++i) {
    fixtures::write_file(path, mutator.mutate(whole, whole.size() - data_bytes));
    loaded += loads(path, i % 16 == 0, i) ? 1 : 0;
  }
  // Both ends are reached: some changes hit names and weights only, most break the file.
  EXPECT_GT(loaded, kMutants / 100);
  EXPECT_LT(loaded, kMutants / 2);
}

TEST(Mutation, Safetensors) {
  const fixtures::ScratchFolder folder;
  const fixtures::TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 1);
  fixtures::write_hf_model(folder.path(), model);
  const fixtures::SafetensorsWriter writer = fixtures::hf_weights(model);
  const std::string whole = writer.bytes();
  Mutator mutator(20261130);
  int loaded = 0;
  for (int i = 0; i < kMutants; ++i) {
    fixtures::write_file(folder / "model.safetensors",
                         mutator.mutate(whole, 8 + writer.header().size()));
    loaded += loads(folder.path(), false, i) ? 1 : 0;
  }
  EXPECT_GT(loaded, kMutants / 100);
  EXPECT_LT(loaded, kMutants / 2);
}

TEST(Mutation, Config) {
  const fixtures::ScratchFolder folder;
  const fixtures::TinyModel model = fixtures::make_tiny_model(fixtures::tiny_spec(), 1);
  fixtures::write_hf_model(folder.path(), model);
  const std::string whole = fixtures::hf_config(model.spec);
  Mutator mutator(20261130);
  int loaded = 0;
  for (int i = 0; i < kMutants; ++i) {
    fixtures::write_file(folder / "config.json", mutator.mutate(whole, whole.size()));
    loaded += loads(folder.path(), false, i) ? 1 : 0;
  }
  EXPECT_GT(loaded, kMutants / 100);
  EXPECT_LT(loaded, kMutants / 2);
}

// Each number of config.json replaced by values that no model has.
void try_numbers(const std::string& architecture) {
  const fixtures::ScratchFolder folder;
  ModelSpec spec = fixtures::tiny_spec(architecture);
  fixtures::add_family_parts(spec, 12, 4);
  const fixtures::TinyModel model = fixtures::make_tiny_model(spec, 1);
  fixtures::write_hf_model(folder.path(), model);
  const std::string whole = fixtures::hf_config(model.spec);
  int mutant = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    const bool begins = whole[at] == ':' && whole[at + 1] >= '0' && whole[at + 1] <= '9';
    if (!begins) continue;
    const size_t end = whole.find_first_not_of("0123456789.e-", at + 1);
    for (const char* value :
         {"0", "-1", "1e400", "1e308", "9223372036854775807", "18446744073709551616", "2147483648",
          "0.5", "\"x\"", "[]", "{}", "[[1]]", "null", "true"}) {
      fixtures::write_file(folder / "config.json",
                           whole.substr(0, at + 1) + value + whole.substr(end));
      loads(folder.path(), false, ++mutant);
    }
  }
  EXPECT_GT(mutant, 100);
}

TEST(Mutation, ConfigNumbers) {
  for (const char* architecture : {"llama", "mixtral", "qwen3_moe", "gemma2", "gemma3_text"})
    try_numbers(architecture);
}

// The parts that only some architectures have, and tensors that lie within others.
TEST(Mutation, GgufOfOtherFamilies) {
  const fixtures::ScratchFolder folder;
  const auto path = folder / "tiny.gguf";
  for (const char* architecture : {"qwen3_moe", "phi3", "gemma3_text"}) {
    ModelSpec spec = fixtures::tiny_spec(architecture);
    fixtures::add_family_parts(spec, 12, 4);
    const fixtures::GgufWriter writer = fixtures::gguf_model(fixtures::make_tiny_model(spec, 1));
    const std::string whole = writer.bytes();
    size_t data_bytes = 0;
    for (const auto& tensor : writer.tensors) data_bytes += tensor.data.size();
    Mutator mutator(20261130);
    int loaded = 0;
    for (int i = 0; i < kMutants / 3; ++i) {
      fixtures::write_file(path, mutator.mutate(whole, whole.size() - data_bytes));
      loaded += loads(path, false, i) ? 1 : 0;
    }
    EXPECT_GT(loaded, 0) << architecture;
    EXPECT_LT(loaded, kMutants / 6) << architecture;
  }
}

}  // namespace
}  // namespace kv
