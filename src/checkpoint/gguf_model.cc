#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "checkpoint/family.h"
#include "checkpoint/gguf_fields.h"
#include "checkpoint/model_files.h"
#include "kvscale/error.h"

namespace kv {
namespace {

void expect_zero(const GgufFields& fields, std::string_view suffix) {
  const double value = fields.number(suffix).value_or(0.0);
  if (value == 0.0) return;
  throw UnsupportedError(fmt::format("{}: {}: expected 0 or no such key, found {}", fields.file(),
                                     fields.key(suffix), value));
}

// Keys that change what a layer computes. Read as 0 when absent; anything else needs code that is
// not there.
constexpr std::array<std::string_view, 9> kMustBeZero{
    "attention.scale",   "logit_scale",         "attention.clamp_kqv",  "embedding_scale",
    "residual_scale",    "expert_shared_count", "expert_weights_scale", "leading_dense_block_count",
    "expert_group_count"};

// Where GGUF says which layers have a window; llama.cpp has none for architecture llama.
bool has_gguf_windows(const Family& family) {
  return !family.is_interleaved_in_gguf() &&
         (family.windows == WindowRule::kAll || family.windows == WindowRule::kAllButEvery);
}

void refuse_unknown_parts(const GgufFields& fields, const Family& family) {
  for (const std::string_view suffix : kMustBeZero) expect_zero(fields, suffix);
  if (!has_gguf_windows(family)) expect_zero(fields, "attention.sliding_window");
  if (family.attention_cap == 0.0) expect_zero(fields, "attn_logit_softcapping");
  if (!family.is_gemma) expect_zero(fields, "final_logit_softcapping");
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
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (!files.tensors.contains(name)) continue;
    throw UnsupportedError(
        fmt::format("{}: tensor {:?}: longrope is not supported", files.label, name));
  }
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

// Where two families share the name, the one with as many experts as the file declares.
const Family& read_family(const GgufFile& gguf) {
  const std::string name = gguf.metadata().text("general.architecture").value_or("");
  const int64_t experts = gguf.metadata().integer(name + ".expert_count").value_or(0);
  const Family* family = find_gguf_family(name, experts != 0);
  if (family != nullptr) return *family;
  if (find_gguf_family(name, experts == 0) != nullptr) {
    throw UnsupportedError(
        fmt::format("{}: {}.expert_count: {} is not supported", gguf.file_name(), name, experts));
  }
  throw UnsupportedError(fmt::format("{}: general.architecture: expected one of {}, found {:?}",
                                     gguf.file_name(), known_gguf_architectures(), name));
}

std::vector<int> read_windows(const GgufFields& fields, const Family& family, int num_layers) {
  if (!has_gguf_windows(family)) return {};
  const IntRange range{0, kWindowRange.most};
  const int window = family.windows == WindowRule::kAll
                         ? fields.integer("attention.sliding_window", range).value_or(0)
                         : fields.required_integer("attention.sliding_window", range);
  Family rule = family;
  const IntRange periods{1, kNumLayersRange.most};
  const std::optional<int> every = fields.integer("attention.sliding_window_pattern", periods);
  if (every) rule.full_every = *every;
  return windows_by_rule(rule, num_layers, window, num_layers);
}

// llama.cpp: the query's scale of the largest model of either kind is (hidden_size / heads)^-0.5.
void read_gemma(const GgufFields& fields, ModelSpec& spec) {
  const int largest = spec.architecture == "gemma2" ? 46 : 62;
  if (spec.num_layers == largest) {
    const double size = static_cast<double>(spec.hidden_size) / spec.num_q_heads;
    if (size != spec.head_dim) spec.softmax_scale = 1.0 / std::sqrt(size);
  }
  const Family& family = family_of(spec);
  spec.attention_soft_cap = fields.number("attn_logit_softcapping").value_or(family.attention_cap);
  spec.logit_soft_cap = fields.number("final_logit_softcapping").value_or(family.logit_cap);
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  if (!family.has_window_rope || spec.windows.empty()) return;
  spec.window_rope.emplace();
  spec.window_rope->theta = fields.number("rope.freq_base_swa").value_or(10000.0);
}

void read_experts(const GgufFields& fields, const Family& family, ModelSpec& spec) {
  const IntRange range{1, kExpertsRange.most};
  spec.num_experts = fields.required_integer("expert_count", range);
  spec.experts_per_token = fields.required_integer("expert_used_count", range);
  spec.renormalizes_experts = true;  // llama.cpp: always for these architectures
  if (family.experts == ExpertNames::kMixtral) return;
  spec.intermediate_size = fields.required_integer("expert_feed_forward_length", kSizeRange);
}

ModelSpec read_spec(const GgufFile& gguf, const Family& family) {
  const GgufMetadata& metadata = gguf.metadata();
  ModelSpec spec;
  spec.architecture = family.hf_type;
  const GgufFields fields(gguf, std::string(family.gguf));
  refuse_unknown_parts(fields, family);
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
  spec.windows = read_windows(fields, family, spec.num_layers);
  take_family_parts(family, spec);
  if (family.is_gemma) read_gemma(fields, spec);
  if (family.experts != ExpertNames::kNone) read_experts(fields, family, spec);
  read_tokens(metadata, gguf.file_name(), spec);
  return spec;
}

}  // namespace

ModelFiles read_gguf_model(const std::filesystem::path& path) {
  ModelFiles files;
  files.gguf = std::make_unique<GgufFile>(path);
  files.label = files.gguf->file_name();
  files.is_gguf = true;
  const Family& family = read_family(*files.gguf);
  files.spec = read_spec(*files.gguf, family);
  files.chat_template = files.gguf->metadata().text("tokenizer.chat_template").value_or("");
  for (const StoredTensor& tensor : files.gguf->tensors())
    files.tensors.emplace(tensor.name, tensor);
  files.spec.tied_embeddings = !files.tensors.contains("output.weight");
  files.spec.has_qkv_bias = family.has_qkv_bias || files.tensors.contains("blk.0.attn_q.bias");
  files.spec.has_o_bias = files.tensors.contains("blk.0.attn_output.bias");
  read_freq_divisors(files);
  validate(files.spec, files.label);
  return files;
}

}  // namespace kv
