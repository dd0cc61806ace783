#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kvscale/error.h"
#include "tensor/atomic_file.h"
#include "tensor/mapped_file.h"
#include "tensor/shape.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

struct TempFolder {
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "kvscale-test-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { fs::remove_all(path); }
  fs::path path;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Shape, SecondTensorMustAgreeAndTheMessageSaysWithWhom) {
  Dim tokens{"num_tokens"}, heads{"num_kv_heads"}, dim{"head_dim"};
  expect("store_kv", "k", TensorView::contiguous(nullptr, DType::kBF16, {5, 2, 128}),
         {&tokens, &heads, &dim});
  EXPECT_EQ(dim.size, 128);
  EXPECT_EQ(message_of([&] {
              expect("store_kv", "v", TensorView::contiguous(nullptr, DType::kBF16, {5, 2, 64}),
                     {&tokens, &heads, &dim});
            }),
            "store_kv: v: expected head_dim = 128 (from k), found 64");
}

TEST(Shape, ZeroIsASize) {
  Dim tokens{"num_tokens"};
  expect("op", "a", TensorView::contiguous(nullptr, DType::kF32, {0}), {&tokens});
  EXPECT_EQ(tokens.size, 0);
  EXPECT_THROW(expect("op", "b", TensorView::contiguous(nullptr, DType::kF32, {1}), {&tokens}),
               ShapeError);
}

TEST(Shape, RankDtypeAndLastStrideAreChecked) {
  Dim a{"a"}, b{"b"};
  TensorView view = TensorView::contiguous(nullptr, DType::kF32, {4, 6});
  EXPECT_EQ(message_of([&] { expect("op", "x", view, {&a}); }),
            "op: x: expected 1 dimensions, found [4, 6]");
  EXPECT_EQ(message_of([&] {
              expect("op", "x", view, DType::kBF16, {&a, &b});
            }),
            "op: x: expected dtype bf16, found f32");
  view.strides[1] = 2;
  EXPECT_EQ(message_of([&] {
              expect("op", "x", view, {&a, &b});
            }),
            "op: x: expected a contiguous last dimension, found stride 2");
}

TEST(View, ContiguousStridesAreRowMajor) {
  const TensorView view = TensorView::contiguous(nullptr, DType::kF32, {2, 3, 4});
  EXPECT_EQ(view.strides[0], 12);
  EXPECT_EQ(view.strides[1], 4);
  EXPECT_EQ(view.num_elements(), 24);
  EXPECT_TRUE(view.is_contiguous());
}

TEST(MappedFile, MissingFileAndFolderAreNamed) {
  const TempFolder folder;
  EXPECT_NE(message_of([&] { MappedFile file(folder.path / "absent.gguf"); }).find("absent.gguf"),
            std::string::npos);
  EXPECT_NE(message_of([&] { MappedFile file(folder.path); }).find("regular file"),
            std::string::npos);
}

TEST(AtomicFile, ReplacesWholeAndLeavesNoTemporary) {
  const TempFolder folder;
  const fs::path path = folder.path / "a.json";
  write_file_atomically(path, "old");
  write_file_atomically(path, "new content");
  const MappedFile file(path);
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), "new content");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 1);
}

TEST(AtomicFile, FailureNamesThePath) {
  const TempFolder folder;
  EXPECT_NE(message_of([&] {
              write_file_atomically(folder.path / "no" / "b.json", "x");
            }).find("no/b.json"),
            std::string::npos);
}

}  // namespace
}  // namespace kv
