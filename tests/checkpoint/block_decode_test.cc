#include <cstring>

#include "checkpoint/encoding.h"
#include "checkpoint/stored_tensor.h"
#include "numeric/bf16.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

// Random blocks and what the gguf package makes of them (make_golden.py).
struct Golden {
  uint32_t num_blocks;
  std::string blocks;
  std::vector<float> values;
};

Golden load_golden(const std::string& file, const Encoding& encoding) {
  const std::string all =
      fixtures::read_file(std::filesystem::path(KV_SOURCE_DIR) / "tests/golden/checkpoint" / file);
  Golden golden;
  std::memcpy(&golden.num_blocks, all.data(), sizeof(golden.num_blocks));
  const size_t block_bytes = golden.num_blocks * static_cast<size_t>(encoding.block_bytes);
  golden.blocks = all.substr(4, block_bytes);
  golden.values.resize(golden.num_blocks * static_cast<size_t>(encoding.block_values));
  EXPECT_EQ(all.size(), 4 + block_bytes + golden.values.size() * sizeof(float)) << file;
  std::memcpy(golden.values.data(), all.data() + 4 + block_bytes,
              golden.values.size() * sizeof(float));
  return golden;
}

uint32_t bits(float value) {
  uint32_t raw;
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

struct Case {
  uint32_t gguf_type;
  const char* file;
};

class BlockDecode : public testing::TestWithParam<Case> {};

TEST_P(BlockDecode, EqualsGgufPackageBitForBit) {
  const Encoding& encoding = *gguf_encoding(GetParam().gguf_type);
  const Golden golden = load_golden(GetParam().file, encoding);
  std::vector<float> decoded(golden.values.size());
  encoding.decode(reinterpret_cast<const uint8_t*>(golden.blocks.data()), golden.num_blocks,
                  decoded.data());
  for (size_t i = 0; i < decoded.size(); ++i) {
    ASSERT_EQ(bits(decoded[i]), bits(golden.values[i]))
        << encoding.name << " value " << i << ": " << decoded[i] << " for " << golden.values[i];
  }
}

TEST_P(BlockDecode, DoesNotNeedAlignment) {
  const Encoding& encoding = *gguf_encoding(GetParam().gguf_type);
  const Golden golden = load_golden(GetParam().file, encoding);
  const std::string shifted = "x" + golden.blocks;
  std::vector<float> decoded(golden.values.size());
  encoding.decode(reinterpret_cast<const uint8_t*>(shifted.data()) + 1, golden.num_blocks,
                  decoded.data());
  EXPECT_EQ(std::memcmp(decoded.data(), golden.values.data(), decoded.size() * sizeof(float)), 0);
}

// Not from the first row on; three rows of a K-quant are more than one conversion buffer holds.
TEST_P(BlockDecode, ReadsRowsAsBf16) {
  const Encoding& encoding = *gguf_encoding(GetParam().gguf_type);
  const Golden golden = load_golden(GetParam().file, encoding);
  const int64_t columns = int64_t{golden.num_blocks} / 4 * encoding.block_values;
  StoredTensor tensor{"t", {4, columns}, &encoding, {}, nullptr, 0};
  tensor.bytes = {reinterpret_cast<const uint8_t*>(golden.blocks.data()), golden.blocks.size()};
  std::vector<uint16_t> halves(static_cast<size_t>(3 * columns));
  read_rows(tensor, 1, 3, halves.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = golden.values[static_cast<size_t>(columns) + i];
    ASSERT_EQ(halves[i], bf16::encode(expected)) << encoding.name << " value " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockDecode,
                         testing::Values(Case{1, "f16.bin"}, Case{2, "q4_0.bin"},
                                         Case{3, "q4_1.bin"}, Case{6, "q5_0.bin"},
                                         Case{7, "q5_1.bin"}, Case{8, "q8_0.bin"},
                                         Case{12, "q4_k.bin"}, Case{13, "q5_k.bin"},
                                         Case{14, "q6_k.bin"}, Case{30, "bf16.bin"}),
                         [](const auto& instance) {
                           return std::string(instance.param.file,
                                              std::strlen(instance.param.file) - 4);
                         });

TEST(Encoding, UnknownTypesHaveNone) {
  EXPECT_EQ(gguf_encoding(4), nullptr);  // a type that GGUF withdrew
  EXPECT_EQ(gguf_encoding(1000), nullptr);
  EXPECT_EQ(safetensors_encoding("F12"), nullptr);
}

TEST(Encoding, NamesTheReadableOnes) {
  EXPECT_EQ(readable_encodings(), "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16");
}

}  // namespace
}  // namespace kv
