#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "checkpoint/model_files.h"
#include "kvscale/error.h"

namespace kv {
namespace {

// Reads keys of `architecture.` with the file's name in every message.
class GgufFields {
 public:
  GgufFields(const GgufFile& gguf, std::string architecture)
      : metadata_(gguf.metadata()),
        file_(gguf.file_name()),
        architecture_(std::move(architecture)) {}

  const std::string& file() const { return file_; }
  std::string key(std::string_view suffix) const {
    return fmt::format("{}.{}", architecture_, suffix);
  }

  std::optional<int> integer(std::string_view suffix, const IntRange& range) const {
    const std::string full = key(suffix);
    if (metadata_.is_array(full)) return same_for_all_layers(full, range);
    const std::optional<int64_t> value = metadata_.integer(full);
    if (!value) return std::nullopt;
    return expect_within(range, *value, file_, full);
  }

  int required_integer(std::string_view suffix, const IntRange& range) const {
    const std::optional<int> value = integer(suffix, range);
    if (!value) fail_absent(suffix);
    return *value;
  }

  std::optional<double> number(std::string_view suffix) const {
    return metadata_.number(key(suffix));
  }

  double required_number(std::string_view suffix) const {
    const std::optional<double> value = number(suffix);
    if (!value) fail_absent(suffix);
    return *value;
  }

  std::optional<std::string> text(std::string_view suffix) const {
    return metadata_.text(key(suffix));
  }

 private:
  int same_for_all_layers(const std::string& full, const IntRange& range) const {
    const std::vector<int64_t> list = metadata_.integers(full);
    const bool same =
        std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end();
    if (list.empty() || !same) {
      throw UnsupportedError(
          fmt::format("{}: {}: expected one value for all layers, found a list of {} that differ",
                      file_, full, list.size()));
    }
    return expect_within(range, list[0], file_, full);
  }

  [[noreturn]] void fail_absent(std::string_view suffix) const {
    throw FormatError(fmt::format("{}: {}: expected this key, found none", file_, key(suffix)));
  }

  const GgufMetadata& metadata_;
  std::string file_;
  std::string architecture_;
};

// Keys that change what a layer computes. Read as 0 when absent; anything else needs code that is
// not there.
constexpr std::array<std::string_view, 9> kMustBeZero{
    "expert_count",           "attention.sliding_window",
    "attn_logit_softcapping", "final_logit_softcapping",
    "attention.scale",        "logit_scale",
    "attention.clamp_kqv",    "embedding_scale",
    "residual_scale"};

void refuse_unknown_parts(const GgufFields& fields) {
  for (const std::string_view suffix : kMustBeZero) {
    const double value = fields.number(suffix).value_or(0.0);
    if (value == 0.0) continue;
    throw UnsupportedError(fmt::format("{}: {}: expected 0 or no such key, found {}", fields.file(),
                                       fields.key(suffix), value));
  }
}

void read_head_dim(const GgufFields& fields, ModelSpec& spec) {
  const std::optional<int> key_length = fields.integer("attention.key_length", kHeadDimRange);
  const std::optional<int> value_length = fields.integer("attention.value_length", kHeadDimRange);
  if (!key_length && spec.hidden_size % spec.num_q_heads != 0) {
    throw FormatError(fmt::format("{}: {}: absent, and {} = {} is no multiple of head_count = {}",
                                  fields.file(), fields.key("attention.key_length"),
                                  fields.key("embedding_length"), spec.hidden_size,
                                  spec.num_q_heads));
  }
  spec.head_dim = key_length.value_or(spec.hidden_size / spec.num_q_heads);
  const auto expect_head_dim = [&](std::string_view suffix, int found) {
    if (found == spec.head_dim) return;
    throw UnsupportedError(fmt::format("{}: {}: expected {} (the head's size), found {}",
                                       fields.file(), fields.key(suffix), spec.head_dim, found));
  };
  expect_head_dim("attention.value_length", value_length.value_or(spec.head_dim));
  expect_head_dim("rope.dimension_count",
                  fields.integer("rope.dimension_count", kHeadDimRange).value_or(spec.head_dim));
}

void read_yarn(const GgufFields& fields, RopeSpec& rope) {
  rope.original_max_positions = fields.required_number("rope.scaling.original_context_length");
  rope.beta_fast = fields.number("rope.scaling.yarn_beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = fields.number("rope.scaling.yarn_beta_slow").value_or(rope.beta_slow);
  // llama.cpp multiplies its own 0.1 ln(factor) + 1 by this.
  const std::optional<double> extra = fields.number("rope.scaling.attn_factor");
  if (extra) rope.given_attention_factor = *extra * attention_factor(rope);
  for (const std::string_view suffix :
       {"rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor",
        "rope.scaling.yarn_attn_factor"}) {
    if (fields.number(suffix)) {
      throw UnsupportedError(
          fmt::format("{}: {} is not supported", fields.file(), fields.key(suffix)));
    }
  }
}

void read_rope(const GgufFields& fields, RopeSpec& rope) {
  rope.theta = fields.number("rope.freq_base").value_or(10000.0);
  rope.factor = fields.number("rope.scaling.factor").value_or(1.0);
  // A factor without a type is linear, as llama.cpp reads it.
  const std::string type =
      fields.text("rope.scaling.type").value_or(rope.factor == 1.0 ? "none" : "linear");
  if (type == "none") {
    rope.factor = 1.0;
  } else if (type == "linear") {
    rope.type = RopeType::kLinear;
  } else if (type == "yarn") {
    rope.type = RopeType::kYarn;
    read_yarn(fields, rope);
  } else {
    throw UnsupportedError(fmt::format("{}: {}: expected none, linear or yarn, found {:?}",
                                       fields.file(), fields.key("rope.scaling.type"), type));
  }
}

// llama3's scaling comes as a tensor of divisors.
void read_freq_divisors(ModelFiles& files) {
  const auto found = files.tensors.find("rope_freqs.weight");
  if (found == files.tensors.end()) return;
  const StoredTensor& tensor = found->second;
  if (tensor.shape != std::vector<int64_t>{files.spec.head_dim / 2} ||
      tensor.encoding->name != "F32") {
    throw FormatError(fmt::format(
        "{}: tensor \"rope_freqs.weight\": expected F32 of shape [{}], found {} of {}", files.label,
        files.spec.head_dim / 2, tensor.encoding->name, shape_text(tensor.shape)));
  }
  files.spec.rope.freq_divisors.resize(static_cast<size_t>(tensor.shape[0]));
  read_rows(tensor, 0, tensor.shape[0], files.spec.rope.freq_divisors.data());
  files.tensors.erase(found);  // it has been read
}

void read_tokens(const GgufMetadata& metadata, const std::string& file, ModelSpec& spec) {
  const auto token = [&](std::string_view key) -> std::optional<int32_t> {
    const std::optional<int64_t> id = metadata.integer(key);
    if (!id) return std::nullopt;
    return expect_within(kTokenRange, *id, file, key);
  };
  spec.bos_id = token("tokenizer.ggml.bos_token_id");
  for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"}) {
    const std::optional<int32_t> id = token(key);
    if (id && std::find(spec.eos_ids.begin(), spec.eos_ids.end(), *id) == spec.eos_ids.end()) {
      spec.eos_ids.push_back(*id);
    }
  }
  // llama-bpe files without the key expect a BOS (Llama 3).
  spec.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token")
                     .value_or(metadata.text("tokenizer.ggml.pre") == "llama-bpe");
}

void read_vocab_size(const GgufFields& fields, const GgufMetadata& metadata, ModelSpec& spec) {
  const uint64_t tokens = metadata.array_size("tokenizer.ggml.tokens");
  const std::optional<int> declared = fields.integer("vocab_size", kVocabRange);
  spec.vocab_size = declared
                        ? *declared
                        : expect_within(kVocabRange, static_cast<int64_t>(tokens), fields.file(),
                                        "tokenizer.ggml.tokens (number of tokens)");
  if (static_cast<uint64_t>(spec.vocab_size) < tokens) {
    throw FormatError(fmt::format("{}: {}: expected at least {} (tokenizer.ggml.tokens), found {}",
                                  fields.file(), fields.key("vocab_size"), tokens,
                                  spec.vocab_size));
  }
}

ModelSpec read_spec(const GgufFile& gguf) {
  const GgufMetadata& metadata = gguf.metadata();
  ModelSpec spec;
  spec.architecture = metadata.text("general.architecture").value_or("");
  if (spec.architecture != "llama" && spec.architecture != "qwen2") {
    throw UnsupportedError(
        fmt::format("{}: general.architecture: expected llama or qwen2, found {:?}",
                    gguf.file_name(), spec.architecture));
  }
  const GgufFields fields(gguf, spec.architecture);
  refuse_unknown_parts(fields);
  spec.name = metadata.text("general.name").value_or("");
  spec.num_layers = fields.required_integer("block_count", kNumLayersRange);
  spec.hidden_size = fields.required_integer("embedding_length", kSizeRange);
  spec.intermediate_size = fields.required_integer("feed_forward_length", kSizeRange);
  spec.num_q_heads = fields.required_integer("attention.head_count", kHeadsRange);
  spec.num_kv_heads =
      fields.integer("attention.head_count_kv", kHeadsRange).value_or(spec.num_q_heads);
  spec.max_positions = fields.required_integer("context_length", kPositionsRange);
  spec.rms_norm_eps = fields.required_number("attention.layer_norm_rms_epsilon");
  read_head_dim(fields, spec);
  read_vocab_size(fields, metadata, spec);
  read_rope(fields, spec.rope);
  read_tokens(metadata, gguf.file_name(), spec);
  return spec;
}

}  // namespace

ModelFiles read_gguf_model(const std::filesystem::path& path) {
  ModelFiles files;
  files.gguf = std::make_unique<GgufFile>(path);
  files.label = files.gguf->file_name();
  files.is_gguf = true;
  files.spec = read_spec(*files.gguf);
  files.chat_template = files.gguf->metadata().text("tokenizer.chat_template").value_or("");
  for (const StoredTensor& tensor : files.gguf->tensors())
    files.tensors.emplace(tensor.name, tensor);
  files.spec.tied_embeddings = !files.tensors.contains("output.weight");
  files.spec.has_qkv_bias =
      files.spec.architecture == "qwen2" || files.tensors.contains("blk.0.attn_q.bias");
  files.spec.has_o_bias = files.tensors.contains("blk.0.attn_output.bias");
  read_freq_divisors(files);
  validate(files.spec, files.label);
  return files;
}

}  // namespace kv
