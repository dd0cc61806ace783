#include "checkpoint/gguf_file.h"

#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using fixtures::GgufWriter;

GgufWriter small_file() {
  GgufWriter writer;
  writer.set_text("general.architecture", "llama").set_u32("llama.block_count", 3);
  writer.set_f32("a.float", 0.5f).set_bool("a.flag", true);
  writer.set_texts("a.texts", {"x", "", "long text"}).set_integers("a.integers", {-1, 7});
  writer.tensors.push_back({"matrix", {2, 3}, 0, std::string(24, 'm')});
  writer.tensors.push_back({"blocks", {1, 64}, 8, std::string(68, 'b')});  // Q8_0
  return writer;
}

class GgufFileTest : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::filesystem::path path = folder_ / "m.gguf";
    fixtures::write_file(path, bytes);
    return path;
  }
  // The message of the error, or "read".
  std::string refusal(const std::string& bytes) {
    const std::string path = write(bytes);
    try {
      const GgufFile file(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "read";
  }
  std::string refusal(const GgufWriter& writer) { return refusal(writer.bytes()); }

  fixtures::ScratchFolder folder_;
};

TEST_F(GgufFileTest, ReadsValuesOfEveryKind) {
  const GgufFile file(write(small_file().bytes()));
  const GgufMetadata& metadata = file.metadata();
  EXPECT_EQ(metadata.text("general.architecture"), "llama");
  EXPECT_EQ(metadata.integer("llama.block_count"), 3);
  EXPECT_EQ(metadata.number("a.float"), 0.5);
  EXPECT_EQ(metadata.number("llama.block_count"), 3.0);
  EXPECT_EQ(metadata.boolean("a.flag"), true);
  EXPECT_EQ(metadata.texts("a.texts"), (std::vector<std::string>{"x", "", "long text"}));
  EXPECT_EQ(metadata.integers("a.integers"), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(metadata.array_size("a.texts"), 3u);
}

TEST_F(GgufFileTest, AbsentKeysAreNothing) {
  const GgufFile file(write(small_file().bytes()));
  EXPECT_EQ(file.metadata().integer("none"), std::nullopt);
  EXPECT_EQ(file.metadata().text("none"), std::nullopt);
  EXPECT_TRUE(file.metadata().texts("none").empty());
  EXPECT_EQ(file.metadata().array_size("none"), 0u);
}

TEST_F(GgufFileTest, AnotherTypeIsNamed) {
  const GgufFile file(write(small_file().bytes()));
  const auto message = [&](const auto& get) -> std::string {
    try {
      get(file.metadata());
    } catch (const FormatError& error) {
      return error.what();
    }
    return "read";
  };
  EXPECT_EQ(message([](const GgufMetadata& m) { m.integer("a.float"); }),
            "m.gguf: key \"a.float\": expected an integer of at most 63 bits, found f32");
  EXPECT_EQ(message([](const GgufMetadata& m) { m.text("a.texts"); }),
            "m.gguf: key \"a.texts\": expected a string, found array of string");
  EXPECT_EQ(message([](const GgufMetadata& m) { m.integers("a.texts"); }),
            "m.gguf: key \"a.texts\": expected an array of integers, found array of string");
}

TEST_F(GgufFileTest, TensorsHaveShapeAndBytes) {
  for (const uint64_t alignment : {8, 32, 4096}) {
    GgufWriter writer = small_file();
    writer.alignment = alignment;
    const GgufFile file(write(writer.bytes()));
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(file.tensors()[1].encoding->name, "Q8_0");
    for (const StoredTensor& tensor : file.tensors()) {
      EXPECT_EQ(std::string(tensor.bytes.begin(), tensor.bytes.end()),
                std::string(tensor.bytes.size(), tensor.name[0]));
    }
  }
}

TEST_F(GgufFileTest, Version2IsTheSameLayout) {
  GgufWriter writer = small_file();
  writer.version = 2;
  EXPECT_EQ(refusal(writer), "read");
}

TEST_F(GgufFileTest, RefusesOtherFiles) {
  EXPECT_EQ(refusal(std::string("")),
            "m.gguf: truncated in the magic: expected 4 bytes at byte 0, found 0");
  EXPECT_EQ(refusal(std::string("PK\3\4 and more")),
            "m.gguf: expected the magic \"GGUF\", found 0x04034b50 (little endian)");
  GgufWriter writer = small_file();
  writer.version = 4;
  EXPECT_EQ(refusal(writer), "m.gguf: expected GGUF version 2 or 3, found 4");
  writer.version = 0x03000000;
  EXPECT_EQ(refusal(writer), "m.gguf: a big-endian GGUF file");
}

TEST_F(GgufFileTest, RefusesOnePartOfMany) {
  GgufWriter writer = small_file();
  writer.set_u32("split.count", 3);
  EXPECT_EQ(refusal(writer),
            "m.gguf: one of 3 parts; join them into one file first (gguf-split --merge)");
}

TEST_F(GgufFileTest, EveryTruncationIsNoticed) {
  const std::string whole = small_file().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "read") << size << " of " << whole.size();
  }
}

TEST_F(GgufFileTest, TruncatedDataNamesTheTensor) {
  const std::string whole = small_file().bytes();
  const std::string message = refusal(whole.substr(0, whole.size() - 1));
  EXPECT_EQ(message.find("m.gguf: tensor \"blocks\": expected 68 bytes at offset 32 of the data"),
            0u)
      << message;
}

TEST_F(GgufFileTest, RefusesCountsThatLie) {
  GgufWriter writer = small_file();
  writer.num_values = uint64_t{1} << 60;
  EXPECT_NE(refusal(writer).find("m.gguf: metadata: 1152921504606846976 items"), std::string::npos);
  writer = small_file();
  writer.num_tensors = ~uint64_t{0};
  EXPECT_NE(refusal(writer).find("m.gguf: tensors: 18446744073709551615 items"), std::string::npos);
}

TEST_F(GgufFileTest, RefusesLengthsThatLie) {
  GgufWriter writer = small_file();
  std::string payload;
  fixtures::append(payload, ~uint64_t{0});
  writer.set("a.text", fixtures::kText, payload);
  EXPECT_NE(refusal(writer).find("m.gguf: truncated in a string: expected 18446744073709551615"),
            std::string::npos);

  writer = small_file();
  payload.clear();
  fixtures::append(payload, uint32_t{fixtures::kU32});
  fixtures::append(payload, uint64_t{1} << 62);  // times 4 is 0 in 64 bits
  writer.set("a.list", fixtures::kArray, payload);
  EXPECT_NE(refusal(writer).find("m.gguf: key \"a.list\": 4611686018427387904 items"),
            std::string::npos);
}

TEST_F(GgufFileTest, RefusesDeepArrays) {
  std::string payload;
  for (int depth = 0; depth < 100; ++depth) {
    fixtures::append(payload, uint32_t{fixtures::kArray});
    fixtures::append(payload, uint64_t{1});
  }
  GgufWriter writer = small_file();
  writer.set("deep", fixtures::kArray, payload);
  EXPECT_EQ(refusal(writer), "m.gguf: key \"deep\": arrays are nested more than 4 deep");
}

TEST_F(GgufFileTest, RefusesRepeatedNames) {
  GgufWriter writer = small_file();
  writer.values.push_back(writer.values[1]);
  EXPECT_EQ(refusal(writer), "m.gguf: key \"llama.block_count\" occurs twice");
  writer = small_file();
  writer.tensors.push_back(writer.tensors[0]);
  EXPECT_EQ(refusal(writer), "m.gguf: tensor \"matrix\" occurs twice");
}

TEST_F(GgufFileTest, RefusesShapesThatLie) {
  GgufWriter writer = small_file();
  writer.tensor("matrix").shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(refusal(writer),
            "m.gguf: tensor \"matrix\": shape [1099511627776, 1099511627776] has more elements "
            "than 63 bits can count");
  writer = small_file();
  writer.tensor("matrix").shape = {int64_t{1} << 31, int64_t{1} << 31};  // 2^64 bytes
  EXPECT_NE(refusal(writer).find("larger than any file"), std::string::npos);
  writer = small_file();
  writer.tensor("matrix").shape = {-1, 3};
  EXPECT_EQ(refusal(writer), "m.gguf: tensor \"matrix\": a dimension of 18446744073709551615");
  writer = small_file();
  writer.tensor("matrix").shape = {1, 1, 1, 2, 3};
  EXPECT_EQ(refusal(writer), "m.gguf: tensor \"matrix\": expected at most 4 dimensions, found 5");
  writer = small_file();
  writer.tensor("blocks").shape = {2, 33};
  EXPECT_EQ(refusal(writer),
            "m.gguf: tensor \"blocks\": expected rows of a multiple of 32 values (Q8_0), found 33");
}

TEST_F(GgufFileTest, RefusesOffsetsThatLie) {
  GgufWriter writer = small_file();
  writer.tensor("blocks").offset = 33;
  EXPECT_EQ(refusal(writer),
            "m.gguf: tensor \"blocks\": expected an offset that is a multiple of 32, found 33");
  writer.tensor("blocks").offset = ~uint64_t{31};
  EXPECT_NE(refusal(writer).find("tensor \"blocks\": expected 68 bytes at offset"),
            std::string::npos);
  writer.tensor("blocks").offset = 0;
  EXPECT_EQ(refusal(writer), "m.gguf: tensors \"matrix\" and \"blocks\" overlap");
}

TEST_F(GgufFileTest, RefusesOddAlignments) {
  for (const uint64_t alignment : {3, 48, 1 << 30}) {
    GgufWriter writer = small_file();
    writer.set_u32("general.alignment", static_cast<uint32_t>(alignment));
    EXPECT_EQ(refusal(writer).find("m.gguf: key \"general.alignment\": expected a power of two"),
              0u);
  }
  GgufWriter writer = small_file();
  writer.set_u32("general.alignment", 0);
  EXPECT_NE(refusal(writer), "read");
}

TEST_F(GgufFileTest, RefusesUnknownTypes) {
  GgufWriter writer = small_file();
  writer.tensor("matrix").type = 4242;
  EXPECT_EQ(refusal(writer), "m.gguf: tensor \"matrix\": unknown tensor type 4242; readable: " +
                                 readable_encodings());
  writer = small_file();
  writer.set("a.new", 13, "");
  EXPECT_EQ(refusal(writer), "m.gguf: key \"a.new\": expected a type of 0 to 12, found 13");
}

TEST_F(GgufFileTest, NamesAreEscapedAndCut) {
  GgufWriter writer = small_file();
  writer.tensors[0].name = "a\n\x1b[31m";
  writer.tensors[0].type = 4242;
  EXPECT_EQ(refusal(writer).find("m.gguf: tensor \"a\\n\\x1b[31m\": unknown"), 0u)
      << refusal(writer);
  writer.tensors[0].name = std::string(1000, 'n');
  EXPECT_EQ(refusal(writer), "m.gguf: tensor \"" + std::string(63, 'n') +
                                 "\": expected a name of 1 to 63 bytes, found 1000");
}

}  // namespace
}  // namespace kv
