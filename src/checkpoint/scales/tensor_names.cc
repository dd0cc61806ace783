#include "checkpoint/scales/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace kv {
namespace {

using Kind = TensorRole::Kind;

struct Known {
  std::string_view ending;
  Kind kind;
  ScaleSide side;
};

constexpr auto kK = ScaleSide::kK;
constexpr auto kV = ScaleSide::kV;
constexpr auto kQ = ScaleSide::kQ;
constexpr auto kProb = ScaleSide::kProb;

// What follows the layer's number, the best known spelling first: of two in one checkpoint the
// earlier counts. Names that engines map to their attention layer (vLLM 0.32, SGLang 0.5.23), and
// those of the tools that write scales.
constexpr std::array<Known, 43> kKnown{{
    {"self_attn.k_proj.k_scale", Kind::kScale, kK},  // ModelOpt unified
    {"self_attn.v_proj.v_scale", Kind::kScale, kV},
    {"self_attn.q_proj.q_scale", Kind::kScale, kQ},
    {"self_attn.k_scale", Kind::kScale, kK},  // compressed-tensors, AutoFP8, ModelOpt Megatron
    {"self_attn.v_scale", Kind::kScale, kV},
    {"self_attn.q_scale", Kind::kScale, kQ},
    {"mixer.k_proj.k_scale", Kind::kScale, kK},  // Nemotron-H
    {"mixer.v_proj.v_scale", Kind::kScale, kV},
    {"mixer.k_scale", Kind::kScale, kK},
    {"mixer.v_scale", Kind::kScale, kV},
    {"self_attn.attn.k_scale", Kind::kScale, kK},  // vLLM's own name
    {"self_attn.attn.v_scale", Kind::kScale, kV},
    {"self_attn.attn.q_scale", Kind::kScale, kQ},
    {"self_attn.mla_attn.mla_attn.k_scale", Kind::kScale, kK},
    {"self_attn.mla_attn.mla_attn.v_scale", Kind::kScale, kV},
    {"self_attn.qkv_proj.k_scale", Kind::kScale, kK},
    {"self_attn.qkv_proj.v_scale", Kind::kScale, kV},
    {"self_attn.qkqkv_proj.k_scale", Kind::kScale, kK},
    {"self_attn.qkqkv_proj.v_scale", Kind::kScale, kV},
    {"attn.k_scale", Kind::kScale, kK},
    {"attn.v_scale", Kind::kScale, kV},
    {"attention.k_scale", Kind::kScale, kK},
    {"attention.v_scale", Kind::kScale, kV},
    {"self_attn.k_proj.output_scale", Kind::kScale, kK},  // compressed-tensors of 2024, Quark
    {"self_attn.v_proj.output_scale", Kind::kScale, kV},
    {"self_attn.q_proj.output_scale", Kind::kScale, kQ},
    {"self_attn.k_cache.scale", Kind::kScale, kK},
    {"self_attn.v_cache.scale", Kind::kScale, kV},
    {"self_attn.q.scale", Kind::kScale, kQ},
    {"self_attn.kv_scale", Kind::kSharedScale, kK},  // AutoFP8, early
    {"self_attn.attn.kv_scale", Kind::kSharedScale, kK},
    {"attention.k_cache_scaling_factor", Kind::kScale, kK},  // TensorRT-LLM
    {"attention.v_cache_scaling_factor", Kind::kScale, kV},
    {"attention.kv_cache_scaling_factor", Kind::kSharedScale, kK},
    {"attention.k_fake_quantizer.qscale_act", Kind::kScale, kK},  // Mistral
    {"attention.v_fake_quantizer.qscale_act", Kind::kScale, kV},
    {"attention.q_fake_quantizer.qscale_act", Kind::kScale, kQ},
    {"attention.kv_fake_quantizer.qscale_act", Kind::kSharedScale, kK},
    {"self_attn.prob_output_scale", Kind::kScale, kProb},
    {"self_attn.prob_scale", Kind::kScale, kProb},
    {"self_attn.attn.prob_scale", Kind::kScale, kProb},
    {"k_proj.k_bias", Kind::kBias, kK},
    {"v_proj.v_bias", Kind::kBias, kV},
}};

constexpr std::array<std::string_view, 11> kKeyWeights = {"self_attn.k_proj.weight",
                                                          "self_attn.qkv_proj.weight",
                                                          "self_attn.kv_a_proj_with_mqa.weight",
                                                          "attention.wk.weight",
                                                          "attention.qkv.weight",
                                                          "mixer.k_proj.weight",
                                                          "attn.c_attn.weight",
                                                          "attn.qkv_proj.weight",
                                                          "self_attn.query_key_value.weight",
                                                          "self_attn.k_proj.qweight",
                                                          "self_attn.k_proj.weight_packed"};

// Scales of weights and activations, none of the cache's business.
constexpr std::array<std::string_view, 10> kWeightScales = {
    "weight_scale",    "weight_scale_inv", "weight_scale_2",      "input_scale",
    "output_scale",    "activation_scale", "weight_global_scale", "input_global_scale",
    "pre_quant_scale", "qscale_act"};

constexpr std::array<std::string_view, 4> kLayerWords = {"layers", "h", "blocks", "blk"};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "X.layers.N.REST" -> {"X.layers.N", N, "REST"}.
struct Place {
  std::string_view before, prefix, rest;
  int layer = -1;
};

std::optional<Place> layer_of(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = name.find('.', begin);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view word = name.substr(begin, end - begin);
    if (std::ranges::find(kLayerWords, word) != kLayerWords.end()) {
      int layer = -1;
      const char* last = name.data() + name.size();
      const auto [stop, error] = std::from_chars(name.data() + end + 1, last, layer);
      if (error == std::errc() && layer >= 0 && stop != last && *stop == '.') {
        const auto at = static_cast<size_t>(stop - name.data());
        return Place{name.substr(0, begin), name.substr(0, at), name.substr(at + 1), layer};
      }
    }
    begin = end + 1;
  }
  return std::nullopt;
}

bool is_other_tower(std::string_view before) {
  return contains(before, "vision") || contains(before, "visual") || contains(before, "audio") ||
         contains(before, "image");
}

std::string_view last_word(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// Would a person take this for a scale of the cache?
bool looks_like_scale(std::string_view name) {
  const std::string_view last = last_word(name);
  const bool is_scale = contains(last, "scale") || contains(last, "scaling_factor") ||
                        (contains(last, "amax") && contains(name, "bmm_quantizer"));
  if (!is_scale) return false;
  return contains(name, "attn") || contains(name, "attention") || contains(name, "mixer") ||
         contains(name, "kv") || contains(name, "cache") || contains(name, "k_scale") ||
         contains(name, "v_scale");
}

TensorRole unread(int layer, std::string why) {
  TensorRole role;
  role.layer = layer;
  role.why = std::move(why);
  return role;
}

std::optional<TensorRole> known_role(const Place& place) {
  const std::string_view rest = place.rest;
  for (const Known& known : kKnown) {
    const bool matches =
        known.kind == Kind::kBias ? rest.ends_with(known.ending) : rest == known.ending;
    if (matches) return TensorRole{known.kind, known.side, place.layer, std::string(rest), "", ""};
  }
  for (const std::string_view side : {"k", "v", "q"}) {
    if (last_word(rest) == fmt::format("{}_zero_point", side)) {
      return TensorRole{Kind::kZeroPoint, kK, place.layer, std::string(rest), "", ""};
    }
  }
  if (rest == "self_attn.k_norm.weight")
    return TensorRole{Kind::kKeyNorm, kK, place.layer, "", "", ""};
  if (rest == "self_attn.k_proj.bias")
    return TensorRole{Kind::kKeyBias, kK, place.layer, "", "", ""};
  for (const std::string_view weight : kKeyWeights) {
    if (rest != weight) continue;
    const std::string_view module = rest.substr(0, rest.find('.'));
    return TensorRole{
        Kind::kKeyWeight, kK, place.layer, "", fmt::format("{}.{}", place.prefix, module), ""};
  }
  return std::nullopt;
}

bool is_of_cache(Kind kind) {
  return kind == Kind::kScale || kind == Kind::kSharedScale || kind == Kind::kBias ||
         kind == Kind::kZeroPoint;
}

}  // namespace

std::optional<TensorRole> tensor_role(std::string_view name, int num_layers) {
  const std::optional<Place> place = layer_of(name);
  if (place) {
    const std::optional<TensorRole> role = known_role(*place);
    const bool is_cache = role && is_of_cache(role->kind);
    if (role && is_other_tower(place->before)) {
      return is_cache ? std::optional(unread(place->layer, "not of the text model")) : std::nullopt;
    }
    if (role && num_layers > 0 && place->layer >= num_layers) {
      if (!is_cache) return std::nullopt;
      return unread(place->layer,
                    fmt::format("layer {} of {}: not of the model itself (a draft layer?)",
                                place->layer, num_layers));
    }
    if (role) return role;
  }
  const std::string_view last = last_word(name);
  if (std::ranges::find(kWeightScales, last) != kWeightScales.end()) {
    return TensorRole{Kind::kWeightScale, kK, -1, "", "", ""};
  }
  if (!looks_like_scale(name)) return std::nullopt;
  if (contains(last, "amax")) return unread(-1, "a quantizer's amax, which no engine reads");
  return unread(place ? place->layer : -1,
                place ? "no engine reads a scale of this name" : "its name has no layer number");
}

int spelling_rank(std::string_view spelling) {
  const auto found = std::ranges::find(kKnown, spelling, &Known::ending);
  return static_cast<int>(found - kKnown.begin());
}

}  // namespace kv
