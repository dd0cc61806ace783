#include "checkpoint/safetensors_file.h"

#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using fixtures::SafetensorsWriter;

class SafetensorsFileTest : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::filesystem::path path = folder_ / "m.safetensors";
    fixtures::write_file(path, bytes);
    return path;
  }
  std::string refusal(const std::string& bytes) {
    const std::string path = write(bytes);
    try {
      const SafetensorsFile file(path);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "read";
  }
  // A file of this header and so many bytes of data.
  std::string refusal(const std::string& header, size_t data_bytes) {
    return refusal(SafetensorsWriter::with_header(header, std::string(data_bytes, 'd')));
  }

  fixtures::ScratchFolder folder_;
};

TEST_F(SafetensorsFileTest, ReadsTensors) {
  SafetensorsWriter writer;
  writer.tensors = {{"b", "BF16", {2, 2}, "12345678"},
                    {"a", "F8_E4M3", {3}, "abc"},
                    {"scalar", "F32", {}, "wxyz"},
                    {"empty", "F32", {0, 4}, ""},
                    {"packed", "F4", {2, 3}, "def"}};
  const SafetensorsFile file(write(writer.bytes()));
  ASSERT_EQ(file.tensors().size(), 5u);
  for (const StoredTensor& tensor : file.tensors()) {
    const auto expected = std::find_if(writer.tensors.begin(), writer.tensors.end(),
                                       [&](const auto& t) { return t.name == tensor.name; });
    EXPECT_EQ(std::string(tensor.bytes.begin(), tensor.bytes.end()), expected->data);
    EXPECT_EQ(tensor.shape, expected->shape);
    EXPECT_EQ(tensor.encoding->name, expected->dtype);
  }
}

TEST_F(SafetensorsFileTest, OrderOfEntriesDoesNotMatter) {
  EXPECT_EQ(refusal(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},)"
                    R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
                    5),
            "read");
}

TEST_F(SafetensorsFileTest, EveryTruncationIsNoticed) {
  SafetensorsWriter writer;
  writer.tensors = {{"b", "BF16", {2, 2}, "12345678"}, {"a", "F32", {1}, "abcd"}};
  const std::string whole = writer.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "read") << size << " of " << whole.size();
  }
  EXPECT_EQ(refusal(whole.substr(0, whole.size() - 1)),
            "m.safetensors: expected 12 bytes of data, found 11 (truncated?)");
}

TEST_F(SafetensorsFileTest, RefusesHeadersThatLie) {
  EXPECT_EQ(refusal(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
            "m.safetensors: expected a header of at most 100000000 bytes, found "
            "9223372036854775807");
  EXPECT_EQ(refusal(std::string("\x40\0\0\0\0\0\0\0{}", 10)),
            "m.safetensors: truncated in the header: expected 64 bytes at byte 8, found 2");
  EXPECT_EQ(refusal(" {}", 0), "m.safetensors: expected a header that begins with {");
  EXPECT_EQ(refusal("", 0), "m.safetensors: expected a header that begins with {");
  EXPECT_EQ(refusal("{\"a\":", 0).find("m.safetensors: no valid JSON: "), 0u);
  EXPECT_EQ(refusal("{\"a\":1}", 0), "m.safetensors: tensor \"a\": expected an object");
}

TEST_F(SafetensorsFileTest, RefusesRepeatedKeys) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(refusal("{" + entry + "," + entry + "}", 1),
            "m.safetensors: key \"a\" occurs twice in one object");
}

TEST_F(SafetensorsFileTest, RefusesDeepJson) {
  const std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(refusal(deep, 0), "m.safetensors: nested deeper than 64");
}

std::string two_tensors(const std::string& first, const std::string& second) {
  return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
         R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
}

TEST_F(SafetensorsFileTest, RefusesHolesAndOverlaps) {
  EXPECT_EQ(refusal(two_tensors("[0,4]", "[4,8]"), 8), "read");
  EXPECT_EQ(refusal(two_tensors("[0,4]", "[5,9]"), 9),
            "m.safetensors: tensor \"b\": expected to begin at 4, where the one before ends, "
            "found 5");
  EXPECT_EQ(refusal(two_tensors("[0,4]", "[3,7]"), 7),
            "m.safetensors: tensor \"b\": expected to begin at 4, where the one before ends, "
            "found 3");
  EXPECT_EQ(refusal(two_tensors("[1,5]", "[5,9]"), 9),
            "m.safetensors: tensor \"a\": expected to begin at 0, where the one before ends, "
            "found 1");
  EXPECT_EQ(refusal(two_tensors("[0,4]", "[4,8]"), 9),
            "m.safetensors: expected 8 bytes of data, found 9");
}

std::string one_tensor(const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST_F(SafetensorsFileTest, RefusesSizesThatLie) {
  EXPECT_EQ(refusal(one_tensor("\"F32\"", "[2]", "[0,4]"), 4),
            "m.safetensors: tensor \"a\": shape [2] of F32 does not take the 4 bytes of "
            "data_offsets");
  EXPECT_EQ(refusal(one_tensor("\"F4\"", "[3]", "[0,2]"), 2),
            "m.safetensors: tensor \"a\": shape [3] of F4 does not take the 2 bytes of "
            "data_offsets");
  // 2^62 elements of 4 bytes are 0 bytes in 64 bits.
  EXPECT_EQ(refusal(one_tensor("\"F32\"", "[2147483648,2147483648]", "[0,0]"), 0),
            "m.safetensors: tensor \"a\": shape [2147483648, 2147483648] of F32 does not take the "
            "0 bytes of data_offsets");
  EXPECT_EQ(refusal(one_tensor("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0),
            "m.safetensors: tensor \"a\": shape [4294967296, 4294967296] has more elements than "
            "63 bits can count");
}

TEST_F(SafetensorsFileTest, RefusesOtherTypesOfFields) {
  EXPECT_EQ(refusal(one_tensor("\"F12\"", "[1]", "[0,1]"), 1),
            "m.safetensors: tensor \"a\": unknown dtype \"F12\"");
  EXPECT_EQ(refusal(one_tensor("1", "[1]", "[0,1]"), 1),
            "m.safetensors: tensor \"a\": expected a dtype");
  EXPECT_EQ(refusal(one_tensor("\"U8\"", "[-1]", "[0,1]"), 1),
            "m.safetensors: tensor \"a\": shape: expected integers that are not negative, found "
            "-1");
  EXPECT_EQ(refusal(one_tensor("\"U8\"", "[1.0]", "[0,1]"), 1),
            "m.safetensors: tensor \"a\": shape: expected integers that are not negative, found "
            "1.0");
  EXPECT_EQ(refusal(one_tensor("\"U8\"", "[1]", "[1,0]"), 1),
            "m.safetensors: tensor \"a\": data_offsets: expected [begin, end]");
  EXPECT_EQ(refusal(one_tensor("\"U8\"", "[1]", "[0]"), 1),
            "m.safetensors: tensor \"a\": data_offsets: expected [begin, end]");
  EXPECT_EQ(refusal("{\"__metadata__\":{\"format\":1}}", 0),
            "m.safetensors: __metadata__: expected strings, found 1");
}

}  // namespace
}  // namespace kv
