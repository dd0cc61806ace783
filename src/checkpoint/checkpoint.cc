#include "checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "checkpoint/content_hash.h"
#include "checkpoint/family.h"
#include "checkpoint/model_files.h"
#include "kvscale/error.h"

namespace kv {

struct TensorEntry {
  StoredTensor tensor;
  mutable std::atomic<bool> was_read = false;
};

namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& path) {
  if (fs::is_directory(path)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

ModelFiles read_files(const fs::path& path) {
  if (!fs::exists(path)) throw IoError(fmt::format("{}: no such file or folder", path.string()));
  if (fs::is_directory(path)) return read_hf_model(path);
  if (path.extension() != ".safetensors") return read_gguf_model(path);
  ModelFiles files = read_hf_model(folder_of(path));
  for (const auto& shard : files.shards) {
    if (shard->file_name() == path.filename()) return files;
  }
  throw FormatError(
      fmt::format("{}: not among the files that hold the folder's weights", path.string()));
}

// "Q4_1 (210), F32 (61), Q8_0 (1)", the most frequent first.
std::string encodings_text(const std::deque<TensorEntry>& entries) {
  std::map<std::string_view, int> counts;
  for (const TensorEntry& entry : entries) ++counts[entry.tensor.encoding->name];
  std::vector<std::pair<int, std::string_view>> order;
  for (const auto& [name, count] : counts) order.emplace_back(-count, name);
  std::sort(order.begin(), order.end());
  std::vector<std::string> parts;
  for (const auto& [count, name] : order) parts.push_back(fmt::format("{} ({})", name, -count));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The largest difference of two matrices of the same shape, as F32.
double max_difference(const StoredTensor& a, const StoredTensor& b) {
  std::vector<float> row_a(static_cast<size_t>(a.row_values()));
  std::vector<float> row_b(row_a.size());
  double largest = 0.0;
  for (int64_t row = 0; row < a.num_rows(); ++row) {
    read_rows(a, row, 1, row_a.data());
    read_rows(b, row, 1, row_b.data());
    for (size_t i = 0; i < row_a.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(row_a[i]) - row_b[i]));
    }
  }
  return largest;
}

// A head that is stored though the configuration ties it to the embedding.
std::string head_note(const StoredTensor& embedding, const StoredTensor& head) {
  const std::string used = "tie_word_embeddings is true, so model.embed_tokens.weight is the head";
  if (head.shape != embedding.shape || head.encoding->decode == nullptr) {
    return fmt::format("{}; lm_head.weight is not used ({} of shape {})", used, head.encoding->name,
                       shape_text(head.shape));
  }
  const bool same = head.encoding == embedding.encoding &&
                    std::equal(head.bytes.begin(), head.bytes.end(), embedding.bytes.begin(),
                               embedding.bytes.end());
  if (same) return fmt::format("{}; lm_head.weight holds the same values and is not used", used);
  return fmt::format("{}; lm_head.weight differs from it by up to {} and is not used", used,
                     max_difference(embedding, head));
}

// What names have in common: "model.layers.3.x" -> "model.layers", else the whole name.
std::string prefix_of(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (dot + 1 < name.size() && name[dot + 1] >= '0' && name[dot + 1] <= '9') {
      return name.substr(0, dot);
    }
  }
  return name;
}

}  // namespace

struct Checkpoint::State {
  fs::path path;
  ModelFiles files;
  std::vector<RequiredTensor> required;
  std::deque<TensorEntry> entries;  // one per required tensor; a deque, for atomics do not move
  std::map<std::string, const TensorEntry*, std::less<>> by_name;  // Hugging Face's names
  std::vector<std::string> others;                                 // tensors that are none of them
  mutable std::once_flag hash_once;
  mutable std::string hash;

  void index_tensors();
  void add_notes();
  const TensorEntry& entry(std::string_view name) const;
  const StoredTensor& rows_of(std::string_view name, int64_t first_row, int64_t num_rows) const;
};

// Moves the tensors of the architecture from the file's names to the model's.
void Checkpoint::State::index_tensors() {
  const bool is_interleaved = files.is_gguf && family_of(files.spec).is_interleaved_in_gguf();
  std::map<std::string, StoredTensor, std::less<>> rest = files.tensors;
  for (const RequiredTensor& needed : required) {
    const Place& place = needed.place(files.is_gguf);
    TensorEntry& entry = entries.emplace_back();
    entry.tensor = stored_part(files.tensors.find(place.name)->second, place, needed);
    rest.erase(place.name);
    if (is_interleaved && needed.is_rotated) {
      entry.tensor.interleaved_head_dim = files.spec.head_dim;
    }
    by_name.emplace(needed.name, &entry);
  }
  for (const auto& [name, tensor] : rest) others.push_back(name);
}

void Checkpoint::State::add_notes() {
  const bool all_bf16 = std::all_of(entries.begin(), entries.end(), [](const TensorEntry& entry) {
    return entry.tensor.encoding->is_bf16();
  });
  if (!all_bf16) {
    files.notes.push_back(fmt::format("weights are stored as {}", encodings_text(entries)));
  }
  if (files.is_gguf && !files.spec.tied_embeddings) {
    files.notes.push_back("output.weight is there and is the head, not token_embd.weight");
  }
  const auto head = files.tensors.find("lm_head.weight");
  if (files.spec.tied_embeddings && head != files.tensors.end()) {
    files.notes.push_back(head_note(entry("model.embed_tokens.weight").tensor, head->second));
  }
}

const TensorEntry& Checkpoint::State::entry(std::string_view name) const {
  const auto found = by_name.find(name);
  if (found != by_name.end()) return *found->second;
  throw ValueError(fmt::format("{}: the model has no tensor {:?}", files.label, name));
}

const StoredTensor& Checkpoint::State::rows_of(std::string_view name, int64_t first_row,
                                               int64_t num_rows) const {
  const TensorEntry& found = entry(name);
  const int64_t rows = found.tensor.num_rows();
  if (first_row < 0 || num_rows < 0 || first_row > rows || num_rows > rows - first_row) {
    throw ValueError(
        fmt::format("{}: tensor {:?}: expected rows within [0, {}), found [{}, {} + {})",
                    files.label, name, rows, first_row, first_row, num_rows));
  }
  found.was_read.store(true, std::memory_order_relaxed);
  return found.tensor;
}

std::unique_ptr<Checkpoint> Checkpoint::open(const fs::path& path) try {
  auto state = std::make_unique<State>();
  state->path = path;
  state->files = read_files(path);
  state->required = required_tensors(state->files.spec);
  expect_tensors(state->files, state->required);
  state->index_tensors();
  state->add_notes();
  return std::unique_ptr<Checkpoint>(new Checkpoint(std::move(state)));
} catch (const fs::filesystem_error& error) {
  throw IoError(error.what());
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::~Checkpoint() = default;

const fs::path& Checkpoint::path() const { return state_->path; }
fs::path Checkpoint::folder() const { return folder_of(state_->path); }
const ModelSpec& Checkpoint::spec() const { return state_->files.spec; }
const std::vector<std::string>& Checkpoint::notes() const { return state_->files.notes; }
const std::string& Checkpoint::chat_template() const { return state_->files.chat_template; }
const GgufFile* Checkpoint::gguf() const { return state_->files.gguf.get(); }

bool Checkpoint::has(std::string_view name) const { return state_->by_name.contains(name); }

std::vector<int64_t> Checkpoint::shape(std::string_view name) const {
  return state_->entry(name).tensor.shape;
}

void Checkpoint::read_bf16(std::string_view name, int64_t first_row, int64_t num_rows,
                           uint16_t* out) const {
  read_rows(state_->rows_of(name, first_row, num_rows), first_row, num_rows, out);
}

void Checkpoint::read_f32(std::string_view name, int64_t first_row, int64_t num_rows,
                          float* out) const {
  read_rows(state_->rows_of(name, first_row, num_rows), first_row, num_rows, out);
}

void Checkpoint::drop(std::string_view name) const {
  const StoredTensor& tensor = state_->entry(name).tensor;
  tensor.file->drop(tensor.bytes);
}

std::vector<std::string> Checkpoint::unread() const {
  std::vector<std::string> names = state_->others;
  for (const TensorEntry& entry : state_->entries) {
    if (!entry.was_read.load(std::memory_order_relaxed)) names.push_back(entry.tensor.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());  // parts of one tensor
  return names;
}

std::vector<std::pair<std::string, size_t>> Checkpoint::unread_by_prefix() const {
  std::map<std::string, size_t> counts;
  for (const std::string& name : unread()) ++counts[prefix_of(name)];
  return {counts.begin(), counts.end()};
}

std::string Checkpoint::content_sha256() const {
  std::call_once(state_->hash_once, [this] {
    std::vector<const StoredTensor*> tensors;
    for (const TensorEntry& entry : state_->entries) tensors.push_back(&entry.tensor);
    state_->hash = kv::content_sha256(spec(), state_->required, tensors);
  });
  return state_->hash;
}

}  // namespace kv
