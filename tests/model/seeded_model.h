#pragma once

// Models whose weights a formula gives, so that only their logits need recording. make_golden.py
// has the same formula and the same configurations.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "stats/splitmix64.h"
#include "tests/checkpoint/fixtures.h"

namespace kv::seeded {

/// Values that BF16 holds: one number of SplitMix64 per value, started by FNV-1a of the name; the
/// sum of its four 16-bit parts is nearly normal with deviation 37,837.
inline std::vector<float> tensor(const RequiredTensor& required) {
  SplitMix64 random(fnv1a64(required.name));
  size_t count = 1;
  for (const int64_t size : required.shape) count *= static_cast<size_t>(size);
  const bool is_norm = required.name.find("norm") != std::string::npos;
  const bool is_embedding = required.name.find("embed") != std::string::npos;
  double divisor = 1;
  if (is_embedding) divisor = 8;
  if (!is_embedding && required.shape.size() == 2)
    divisor = std::sqrt(static_cast<double>(required.shape[1]));
  std::vector<float> out(count);
  for (float& value : out) {
    const uint64_t z = random.next();
    int64_t sum = -131070;
    for (int part = 0; part < 4; ++part) sum += static_cast<int64_t>(z >> (16 * part) & 0xffff);
    double x = static_cast<double>(sum) / 37837.0;
    x = is_norm ? 1.0 + 0.25 * x : x / divisor;
    value = bf16::decode(bf16::encode(static_cast<float>(x)));
  }
  return out;
}

inline fixtures::TinyModel model(const ModelSpec& spec) {
  fixtures::TinyModel out{spec, {}};
  for (const RequiredTensor& required : required_tensors(spec))
    out.weights[required.name] = tensor(required);
  return out;
}

inline ModelSpec sizes() {
  ModelSpec spec;
  spec.num_layers = 2;
  spec.hidden_size = 320;
  spec.intermediate_size = 384;
  spec.vocab_size = 512;
  spec.max_positions = 1024;
  spec.bos_id = 1;
  spec.eos_ids = {2};
  return spec;
}

/// Grouped-query attention by 7, biases on Q, K and V, the embedding as output head.
inline ModelSpec qwen2_spec() {
  ModelSpec spec = sizes();
  spec.architecture = "qwen2";
  spec.num_q_heads = 14;
  spec.num_kv_heads = 2;
  spec.head_dim = 64;
  spec.rms_norm_eps = 1e-6;
  spec.rope.theta = 1e6;
  spec.tied_embeddings = true;
  spec.has_qkv_bias = true;
  return spec;
}

/// Heads of 128, llama3's stretched frequencies, an output head of its own.
inline ModelSpec llama3_spec() {
  ModelSpec spec = sizes();
  spec.architecture = "llama";
  spec.num_q_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 128;
  spec.rms_norm_eps = 1e-5;
  spec.rope.theta = 1e4;
  return spec;
}
inline constexpr std::string_view kLlama3Rope =
    R"(,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
    R"("high_freq_factor":4.0,"original_max_position_embeddings":128}})";

/// The other architectures, as FAMILIES of make_golden.py has them.
inline ModelSpec family_spec(const std::string& architecture) {
  ModelSpec spec = sizes();
  spec.architecture = architecture;
  spec.hidden_size = 128;
  spec.intermediate_size = 192;
  spec.vocab_size = 256;
  spec.max_positions = 512;
  spec.num_q_heads = 4;
  spec.num_kv_heads = architecture == "gemma3_text" ? 1 : 2;
  spec.head_dim = 32;
  spec.rms_norm_eps = 1e-6;
  const bool is_moe = architecture == "mixtral" || architecture == "qwen3_moe";
  fixtures::add_family_parts(spec, architecture == "mixtral" ? 0 : 40, is_moe ? 4 : 0);
  if (architecture == "mixtral" || architecture == "qwen3" || architecture == "gemma3_text")
    spec.rope.theta = 1e6;
  if (architecture == "qwen3") spec.head_dim = 64;
  if (architecture == "mixtral") spec.intermediate_size = 96;
  if (architecture == "qwen3_moe") {
    spec.num_experts = 8;
    spec.experts_per_token = 3;
    spec.intermediate_size = 64;
  }
  if (architecture == "gemma2") {
    spec.head_dim = 64;
    spec.softmax_scale = 0.1;
    spec.attention_soft_cap = 5;
    spec.logit_soft_cap = 10;
  }
  if (architecture == "gemma3_text") spec.head_dim = 256;
  return spec;
}

/// A latent with the parts of DeepSeek-V2: `is_lite` has plain queries, greedy experts and YaRN
/// with mscale; else queries have a latent of their own and experts are chosen by groups.
inline ModelSpec deepseek_spec(bool is_lite) {
  ModelSpec spec = family_spec("deepseek_v2");
  spec.num_layers = is_lite ? 3 : 2;
  spec.latent = LatentSpec{is_lite ? 0 : 48, 128, 24, 16, 20};
  spec.num_kv_heads = 1;
  spec.head_dim = spec.latent->kv_rank + spec.latent->rope_dim;
  spec.softmax_scale = 1 / std::sqrt(40.0);
  spec.dense_layers = is_lite ? 1 : 0;
  spec.dense_intermediate_size = 192;
  spec.intermediate_size = 64;
  spec.num_experts = 8;
  spec.experts_per_token = 3;
  spec.shared_intermediate_size = is_lite ? 128 : 64;
  spec.experts_scale = is_lite ? 1.0 : 1.5;
  if (!is_lite) {
    spec.expert_groups = 4;
    spec.groups_per_token = 2;
    return spec;
  }
  spec.rope.type = RopeType::kYarn;
  spec.rope.factor = 8;
  spec.rope.original_max_positions = 64;
  spec.rope.mscale = 0.707;
  spec.rope.mscale_all_dim = 0.9;
  spec.softmax_scale *= latent_score_factor(spec.rope);
  return spec;
}

/// FNV-1a over the BF16 bits of the first 64 values of every tensor, by ascending name.
inline std::string checksum(const fixtures::TinyModel& model) {
  std::string bits;
  for (const auto& [name, values] : model.weights) {
    const auto count = std::min<std::ptrdiff_t>(64, std::ssize(values));
    bits += fixtures::encoded({values.begin(), values.begin() + count}, "BF16");
  }
  std::ostringstream hex;
  hex << std::hex << std::setw(16) << std::setfill('0') << fnv1a64(bits);
  return hex.str();
}

}  // namespace kv::seeded
