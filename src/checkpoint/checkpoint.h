#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/model_spec.h"

namespace kv {

class GgufFile;

/// A model on disk: a GGUF file or a Hugging Face directory of safetensors, memory-mapped.
///
/// Tensors go by their Hugging Face names ("model.layers.3.self_attn.q_proj.weight",
/// "lm_head.weight", ...) and in that layout, [out, in], whichever the file: rows of Q and K that
/// GGUF keeps interleaved for architecture llama come back in half-split order, and projections or
/// experts that a file keeps in one tensor go by the names that they have apart. All methods are
/// safe to call from several threads at once.
class Checkpoint {
 public:
  /// Opens a .gguf file, a directory with config.json, or a .safetensors file of such a directory.
  /// Reads all that is declared and checks that every tensor the architecture needs is there with
  /// the right shape and a dtype that can be read. Throws IoError, FormatError, UnsupportedError.
  static std::unique_ptr<Checkpoint> open(const std::filesystem::path& path);
  ~Checkpoint();

  /// As given to open().
  const std::filesystem::path& path() const;

  /// Where the files lie.
  std::filesystem::path folder() const;

  const ModelSpec& spec() const;

  /// Whether the file holds the tensor. With tied embeddings lm_head.weight is never read: use
  /// spec().tied_embeddings to choose the output head.
  bool has(std::string_view name) const;

  /// [rows, columns], or [values] of a vector. Throws ValueError for a tensor that is not there,
  /// as do the methods below.
  std::vector<int64_t> shape(std::string_view name) const;

  /// Writes rows [first_row, first_row + num_rows) to `out`, row-major. A row of a vector is one
  /// value. Quantized blocks are dequantized to float, then rounded to nearest even; a checkpoint
  /// in BF16 is copied as it is. Throws ValueError when the rows are not there.
  void read_bf16(std::string_view name, int64_t first_row, int64_t num_rows, uint16_t* out) const;
  void read_f32(std::string_view name, int64_t first_row, int64_t num_rows, float* out) const;

  /// Tells the kernel that the tensor's pages are not needed again soon.
  void drop(std::string_view name) const;

  /// Tensors of the files that nobody has read so far, by their name in the file, sorted.
  std::vector<std::string> unread() const;

  /// unread(), counted by what their names have in common: the part before the first number, or
  /// the whole name. [prefix, count], sorted.
  std::vector<std::pair<std::string, size_t>> unread_by_prefix() const;

  /// What a person should know about how the files were understood, one sentence each.
  const std::vector<std::string>& notes() const;

  /// SHA-256, in hex, of the specification and of the bytes of every tensor that the architecture
  /// needs. Does not depend on sharding, on the order of tensors or on tensors beside them (scales
  /// of a KV cache, for one). Read once, on the first call.
  std::string content_sha256() const;

  /// The Jinja chat template, empty when the checkpoint has none.
  const std::string& chat_template() const;

  /// The container, for its metadata; null for a directory.
  const GgufFile* gguf() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kv
