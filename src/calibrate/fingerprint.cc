#include "calibrate/fingerprint.h"

#include <fmt/core.h>

#include "kvscale/error.h"
#include "text/sha256.h"

namespace kv {
namespace {

std::string rope_text(const RopeSpec& rope) {
  std::string out = fmt::format("theta {}, {}", rope.theta, name(rope.type));
  if (rope.type != RopeType::kDefault) out += fmt::format(", factor {}", rope.factor);
  if (rope.type == RopeType::kLlama3) {
    out += fmt::format(", frequencies {} to {}", rope.low_freq_factor, rope.high_freq_factor);
  }
  if (rope.type == RopeType::kYarn) {
    out += fmt::format(", beta {} to {}{}, attention factor {}", rope.beta_slow, rope.beta_fast,
                       rope.truncate ? ", truncated" : "", attention_factor(rope));
  }
  if (rope.original_max_positions > 0) {
    out += fmt::format(", pretrained on {} positions", rope.original_max_positions);
  }
  if (!rope.freq_divisors.empty()) {
    const std::string_view bytes(reinterpret_cast<const char*>(rope.freq_divisors.data()),
                                 rope.freq_divisors.size() * sizeof(float));
    out += fmt::format(", divisors {}", sha256_hex(bytes).substr(0, 16));
  }
  return out;
}

std::string config_text(const ModelSpec& spec) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", spec.architecture, spec.num_layers,
                     spec.hidden_size, spec.intermediate_size, spec.num_q_heads, spec.num_kv_heads,
                     spec.head_dim, spec.vocab_size, spec.rms_norm_eps, spec.tied_embeddings,
                     spec.has_qkv_bias, spec.has_o_bias) +
         other_parts_text(spec);
}

}  // namespace

void add_model_fields(const ModelSpec& spec, CalibrationSource& source) {
  source.head_dim = spec.head_dim;
  source.rope = rope_text(spec.rope);
  source.config_sha256 = sha256_hex(config_text(spec));
}

std::vector<std::string> check_calibration(const Calibration& calibration,
                                           const CalibrationSource& here, const ModelSpec& model,
                                           const std::string& file) {
  const auto refuse = [&](const char* field, const auto& expected, const auto& found) {
    throw ValueError(
        fmt::format("{}: {}: expected {} (the model's), found {}", file, field, expected, found));
  };
  const auto check_number = [&](const char* field, int64_t expected, int64_t found) {
    if (expected != found) refuse(field, expected, found);
  };
  const auto check = [&](const char* field, const std::string& expected, const std::string& found) {
    if (!expected.empty() && expected != found) refuse(field, expected, found);
  };
  CalibrationSource wanted = here;
  add_model_fields(model, wanted);
  const CalibrationSource& source = calibration.source;
  check_number("layers", model.num_layers, calibration.num_layers);
  check_number("kv_heads", model.num_kv_heads, calibration.num_kv_heads);
  check_number("head_dim", wanted.head_dim, source.head_dim);
  check("rope", wanted.rope, source.rope);
  check("config_sha256", wanted.config_sha256, source.config_sha256);
  check("tokenizer_sha256", wanted.tokenizer_sha256, source.tokenizer_sha256);
  check("chat_template_sha256", wanted.chat_template_sha256, source.chat_template_sha256);
  check("model_sha256", wanted.model_sha256, source.model_sha256);
  if (here.seed && here.seed != source.seed) {
    throw ValueError(fmt::format("{}: seed: expected {} (this run's), found {}", file, *here.seed,
                                 source.seed ? fmt::format("{}", *source.seed) : "none"));
  }
  std::vector<std::string> out;
  const auto compare = [&](const char* field, const std::string& ours, const std::string& theirs) {
    if (ours.empty() || ours == theirs) return;
    out.push_back(
        fmt::format("REVALIDATE: {}: {}: calibrated with {}, here it is {}: the scales "
                    "load, but no acceptance of them carries over",
                    file, field, theirs, ours));
  };
  compare("engine.version", here.tool_version, source.tool_version);
  compare("engine.attention", here.attention, source.attention);
  compare("engine.machine", here.machine, source.machine);
  return out;
}

}  // namespace kv
