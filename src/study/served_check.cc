#include "study/served_check.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "study/served_arms.h"
#include "targets/targets.h"

namespace kv {
namespace {

PreflightFact fact_of(const ArmSpec& arm, const char* rule, const std::string& text) {
  const bool is_control = arm.layout == ArmLayout::kBf16;
  return {is_control ? "CONTROL_BROKEN" : rule, false, std::string(name(arm.layout)), "",
          fmt::format("{}: {}", served_key(arm), text)};
}

bool is_sixteen_bit(const std::string& dtype) {
  return dtype == "bfloat16" || dtype == "float16" || dtype == "bf16" || dtype == "f16";
}

/// Cache dtypes that an engine may declare for a layout, beside "auto".
bool is_dtype_of(ArmLayout layout, const std::string& dtype) {
  if (layout == ArmLayout::kBf16) return is_sixteen_bit(dtype);
  if (layout == ArmLayout::kQ8Block) return dtype == "q8_0";
  if (layout == ArmLayout::kFp8TokenHead) return dtype == "fp8_per_token_head";
  return dtype == "fp8" || dtype == "fp8_e4m3";
}

std::string layers_text(const std::set<std::string>& layers) {
  return layers.empty() ? "none" : fmt::format("{}", fmt::join(layers, " "));
}

void check_declared(const ArmSpec& arm, const ServerFacts& facts, std::vector<PreflightFact>& out) {
  const std::string& dtype = facts.cache_dtype;
  // "auto" may become anything once the engine has read the checkpoint.
  if (!dtype.empty() && dtype != "auto" && !is_dtype_of(arm.layout, dtype)) {
    out.push_back(fact_of(arm, "BACKEND_FALLBACK",
                          fmt::format("the server declares the cache dtype {}", dtype)));
  }
  std::set<std::string> asked;
  for (const Bf16Side& side : arm.bf16) asked.insert(fmt::format("{}", side.layer));
  const std::set<std::string> declared(facts.skip_layers.begin(), facts.skip_layers.end());
  if (facts.engine != "vllm" || dtype.empty() || asked == declared) return;
  out.push_back(
      fact_of(arm, "BACKEND_FALLBACK",
              fmt::format("the server keeps layers {} in the model's dtype, the arm says {}",
                          layers_text(declared), layers_text(asked))));
}

struct Guess {
  std::string what;
  ArmSpec arm;
};

/// Formats that a cache may have instead of the one that was asked for.
std::vector<Guess> guesses_for(const ArmSpec& arm) {
  const auto with = [&](ArmLayout layout, bool keeps_layers) {
    ArmSpec out;
    out.layout = layout;
    if (keeps_layers) out.bf16 = arm.bf16;
    return out;
  };
  return {{"16-bit values", with(ArmLayout::kBf16, false)},
          {"FP8 without inline scales", with(ArmLayout::kFp8Scale1, true)},
          {"FP8 without inline scales in all layers", with(ArmLayout::kFp8Scale1, false)},
          {"FP8 with a scale per token and head", with(ArmLayout::kFp8TokenHead, true)}};
}

/// Engines may set a block aside.
bool fits(int64_t expected, const ServerFacts& facts) {
  return expected > 0 && std::abs(expected - facts.cache_tokens) <= facts.block_size;
}

void check_observed(const std::vector<LayerGeometry>& layers, const ArmSpec& arm,
                    const ServerFacts& facts, std::vector<PreflightFact>& out) {
  const int64_t expected = expected_tokens(layers, arm, facts);
  if (facts.cache_tokens == 0 || expected == 0 || fits(expected, facts)) return;
  const auto per_token = [&](int64_t tokens) {
    return static_cast<double>(facts.cache_bytes) / static_cast<double>(tokens);
  };
  for (const Guess& guess : guesses_for(arm)) {
    if (!fits(expected_tokens(layers, guess.arm, facts), facts)) continue;
    out.push_back(fact_of(
        arm, "BACKEND_FALLBACK",
        fmt::format("{} tokens fit into {} bytes ({:.0f} bytes a token) as with {}; with {} it "
                    "would be {} tokens ({:.0f} bytes a token)",
                    facts.cache_tokens, facts.cache_bytes, per_token(facts.cache_tokens),
                    guess.what, served_key(arm), expected, per_token(expected))));
    return;
  }
}

void check_known(const ArmSpec& arm, const ServerFacts& facts, std::vector<PreflightFact>& out) {
  if (facts.engine != "vllm" || facts.device != "CPU" || arm.layout == ArmLayout::kBf16) return;
  const LayoutSupport known = support(name(arm.layout), "vllm:cpu");
  if (!known.supported) {
    out.push_back(fact_of(arm, "BACKEND_FALLBACK", std::string(known.note)));
  }
}

const ServedRecord* find_layout(const std::vector<ServedRecord>& served, const ArmSpec& arm,
                                ArmLayout layout) {
  ArmSpec wanted;
  wanted.layout = layout;
  if (layout != ArmLayout::kBf16) wanted.bf16 = arm.bf16;
  const auto found = std::ranges::find_if(served.rbegin(), served.rend(), [&](const auto& one) {
    return served_key(ArmSpec::parse(one.arm)) == served_key(wanted) && !one.logprobs.empty();
  });
  return found == served.rend() ? nullptr : &*found;
}

}  // namespace

int64_t expected_tokens(const std::vector<LayerGeometry>& layers, const ArmSpec& arm,
                        const ServerFacts& facts) {
  const bool has_windows =
      std::ranges::any_of(layers, [](const LayerGeometry& one) { return one.window > 0; });
  if (facts.cache_bytes <= 0 || facts.block_size <= 0 || has_windows) return 0;
  const int64_t block = block_bytes(layers, arm.formats(std::ssize(layers)), facts.block_size);
  return facts.cache_bytes / block * facts.block_size;
}

double mean_nll(const std::vector<float>& logprobs, size_t count) {
  double sum = 0;
  int64_t n = 0;
  for (size_t i = 0; i < std::min(count, logprobs.size()); ++i) {
    if (!std::isfinite(logprobs[i])) continue;
    sum -= logprobs[i];
    ++n;
  }
  return n == 0 ? 0 : sum / static_cast<double>(n);
}

std::vector<PreflightFact> contradictions(const std::vector<LayerGeometry>& layers,
                                          const ArmSpec& arm, const ServerFacts& facts) {
  std::vector<PreflightFact> out;
  check_declared(arm, facts, out);
  check_observed(layers, arm, facts, out);
  check_known(arm, facts, out);
  if (arm.needs_scales() && facts.says_scale_one) {
    out.push_back(fact_of(arm, "SCALES_NOT_APPLIED",
                          "the server's log says that it found no scales and uses 1.0"));
  }
  return out;
}

std::vector<PreflightFact> contradictions_of_replicas(const std::vector<LayerGeometry>& layers,
                                                      const ArmSpec& arm,
                                                      const std::vector<ServerFacts>& replicas) {
  std::vector<PreflightFact> out;
  for (const ServerFacts& replica : replicas) {
    for (PreflightFact& fact : contradictions(layers, arm, replica)) {
      fact.text +=
          fmt::format(" (one of {} replicas, started at {})", replicas.size(), replica.process);
      out.push_back(std::move(fact));
    }
  }
  return out;
}

std::vector<PreflightFact> contradictions(const std::vector<LayerGeometry>& layers,
                                          const ArmSpec& arm, const ServedRecord& record,
                                          const std::vector<ServedRecord>& served) {
  std::vector<PreflightFact> out;
  if (arm.layout == ArmLayout::kBf16 || record.logprobs.empty()) return out;
  const auto equals = [&](ArmLayout other) {
    const ServedRecord* found = find_layout(served, arm, other);
    return found != nullptr && found->logprobs == record.logprobs;
  };
  const size_t n = record.logprobs.size();
  if (equals(ArmLayout::kBf16)) {
    out.push_back(fact_of(arm, "BACKEND_FALLBACK",
                          fmt::format("all {} logprobs equal the control's to the last "
                                      "bit: nothing is quantized",
                                      n)));
  } else if (arm.needs_scales() && equals(ArmLayout::kFp8Scale1)) {
    out.push_back(fact_of(arm, "SCALES_NOT_APPLIED",
                          fmt::format("all {} logprobs equal those of fp8_scale1 to the "
                                      "last bit: the scales did not arrive",
                                      n)));
  } else if (arm.layout == ArmLayout::kFp8Head && layers.front().num_kv_heads > 1 &&
             equals(ArmLayout::kFp8Tensor)) {
    out.push_back(fact_of(arm, "BACKEND_FALLBACK",
                          fmt::format("all {} logprobs equal those of fp8_tensor to the "
                                      "last bit: one scale serves all heads",
                                      n)));
  }
  return out;
}

}  // namespace kv
