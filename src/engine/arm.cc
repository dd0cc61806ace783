#include "engine/arm.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "kvscale/error.h"
#include "text/edit_distance.h"

namespace kv {
namespace {

constexpr std::array<std::pair<ArmLayout, std::string_view>, 7> kLayouts = {
    {{ArmLayout::kBf16, "bf16"},
     {ArmLayout::kFp8Scale1, "fp8_scale1"},
     {ArmLayout::kFp8Tensor, "fp8_tensor"},
     {ArmLayout::kFp8Head, "fp8_head"},
     {ArmLayout::kFp8TokenHead, "fp8_token_head"},
     {ArmLayout::kFp8DsMla, "fp8_ds_mla"},
     {ArmLayout::kQ8Block, "q8_0"}}};

ArmLayout parse_layout(std::string_view word) {
  const auto distance = [&](const auto& layout) { return edit_distance(word, layout.second); };
  const auto nearest = std::ranges::min_element(kLayouts, {}, distance);
  if (nearest->second == word) return nearest->first;
  throw ValueError(
      fmt::format("arm: layout: expected bf16, fp8_scale1, fp8_tensor, fp8_head, fp8_token_head, "
                  "fp8_ds_mla or q8_0, found \"{}\"; did you mean {}?",
                  word, nearest->second));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Bf16Side parse_bf16_side(std::string_view word) {
  Bf16Side side;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), side.layer);
  const std::string_view rest(end, static_cast<size_t>(word.data() + word.size() - end));
  if (error != std::errc() || side.layer < 0 || (!rest.empty() && rest != "k" && rest != "v")) {
    throw ValueError(fmt::format("arm: bf16: expected layers as 0,3k,7v, found \"{}\"", word));
  }
  side.k = rest != "v";
  side.v = rest != "k";
  return side;
}

std::vector<Bf16Side> parse_bf16_sides(std::string_view list) {
  std::vector<Bf16Side> sides;
  for (const std::string_view word : split(list, ',')) {
    const Bf16Side one = parse_bf16_side(word);
    const auto same = std::ranges::find(sides, one.layer, &Bf16Side::layer);
    if (same == sides.end()) {
      sides.push_back(one);
    } else {
      same->k |= one.k;
      same->v |= one.v;
    }
  }
  std::ranges::sort(sides, {}, &Bf16Side::layer);
  return sides;
}

[[noreturn]] void fail_unknown_option(std::string_view option) {
  constexpr std::array<std::string_view, 7> kKnown = {
      "bf16=", "sink=", "math=bf16", "math=fp8", "round=nearest", "round=truncate", "scales="};
  const auto distance = [&](std::string_view known) { return edit_distance(option, known); };
  throw ValueError(
      fmt::format("arm: option: expected bf16=LAYERS, sink=TOKENS, math=bf16|fp8, "
                  "round=nearest|truncate or scales=FILE, found \"{}\"; did you mean {}?",
                  option, *std::ranges::min_element(kKnown, {}, distance)));
}

int64_t parse_sink(std::string_view word) {
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), tokens);
  if (error == std::errc() && end == word.data() + word.size() && tokens > 0) return tokens;
  throw ValueError(fmt::format("arm: sink: expected a number of tokens, found \"{}\"", word));
}

void parse_option(std::string_view option, ArmSpec& arm, std::set<std::string_view>& seen) {
  const size_t equals = option.find('=');
  const std::string_view key = option.substr(0, equals);
  if (!seen.insert(key).second)
    throw ValueError(fmt::format("arm: option: expected {} once, found it twice", key));
  const std::string_view value = equals == std::string_view::npos ? "" : option.substr(equals + 1);
  if (key == "bf16") {
    arm.bf16 = parse_bf16_sides(value);
  } else if (key == "sink") {
    arm.sink = parse_sink(value);
  } else if (key == "scales" && !value.empty()) {
    arm.scale_file = value;
  } else if (option == "math=bf16" || option == "math=fp8") {
    arm.math = value == "fp8" ? Math::kFp8 : Math::kBf16;
  } else if (option == "round=nearest" || option == "round=truncate") {
    arm.rounding = value == "truncate" ? Rounding::kTruncate : Rounding::kNearestEven;
  } else {
    fail_unknown_option(option);
  }
}

}  // namespace

std::string_view name(ArmLayout layout) { return kLayouts[static_cast<size_t>(layout)].second; }

Format stored_format(ArmLayout layout) {
  switch (layout) {
    case ArmLayout::kBf16:
      return Format::kBf16;
    case ArmLayout::kFp8Scale1:
    case ArmLayout::kFp8Tensor:
      return Format::kE4m3PerTensor;
    case ArmLayout::kFp8Head:
      return Format::kE4m3PerHead;
    case ArmLayout::kFp8TokenHead:
      return Format::kE4m3PerTokenHead;
    case ArmLayout::kFp8DsMla:
      return Format::kE4m3PerTokenTile;
    case ArmLayout::kQ8Block:
      return Format::kQ8Block32;
  }
  throw ValueError("arm: layout outside the enumeration");
}

std::vector<ArmLayout> fp8_layouts(const std::vector<LayerGeometry>& layers) {
  const auto has_latent = [](const LayerGeometry& layer) { return layer.latent_values > 0; };
  if (std::ranges::none_of(layers, has_latent)) {
    return {ArmLayout::kFp8Scale1, ArmLayout::kFp8Tensor, ArmLayout::kFp8Head,
            ArmLayout::kFp8TokenHead};
  }
  std::vector<ArmLayout> out = {ArmLayout::kFp8Scale1, ArmLayout::kFp8Tensor};
  const auto has_tiles = [](const LayerGeometry& layer) {
    return layer.latent_values > 0 && layer.latent_values % kLatentTile == 0;
  };
  if (std::ranges::all_of(layers, has_tiles)) out.push_back(ArmLayout::kFp8DsMla);
  return out;
}

ArmSpec ArmSpec::parse(std::string_view text) {
  ArmSpec arm;
  // A file name may hold slashes: scales= takes the rest of the text.
  const size_t scales = text.find("/scales=");
  const std::vector<std::string_view> parts = split(text.substr(0, scales), '/');
  arm.layout = parse_layout(parts[0]);
  std::set<std::string_view> seen;
  for (size_t i = 1; i < parts.size(); ++i) parse_option(parts[i], arm, seen);
  if (scales != std::string_view::npos) parse_option(text.substr(scales + 1), arm, seen);
  if (arm.layout == ArmLayout::kBf16 && arm != ArmSpec{}) {
    throw ValueError(
        fmt::format("arm: bf16 stores no codes and takes no options, found \"{}\"", text));
  }
  if (arm.sink > 0 && (arm.layout != ArmLayout::kFp8Scale1 || arm.math == Math::kFp8)) {
    throw ValueError(fmt::format(
        "arm: sink: needed fp8_scale1 with math=bf16, whose codes are 16-bit values, found \"{}\"",
        text));
  }
  if (!arm.scale_file.empty() && !arm.needs_scales()) {
    throw ValueError(
        fmt::format("arm: scales: {} has no static scales to read from a file", parts[0]));
  }
  return arm;
}

std::string ArmSpec::text() const {
  std::string out(name(layout));
  for (size_t i = 0; i < bf16.size(); ++i) {
    out += fmt::format("{}{}{}", i == 0 ? "/bf16=" : ",", bf16[i].layer,
                       bf16[i].k && bf16[i].v ? ""
                       : bf16[i].k            ? "k"
                                              : "v");
  }
  if (sink > 0) out += fmt::format("/sink={}", sink);
  if (math == Math::kFp8) out += "/math=fp8";
  if (rounding == Rounding::kTruncate) out += "/round=truncate";
  if (!scale_file.empty()) out += "/scales=" + scale_file;
  return out;
}

std::vector<LayerFormat> ArmSpec::formats(int64_t num_layers) const {
  const Format stored = stored_format(layout);
  std::vector<LayerFormat> out(static_cast<size_t>(num_layers), LayerFormat{stored, stored});
  for (const Bf16Side& side : bf16) {
    if (side.layer < 0 || side.layer >= num_layers) {
      throw ValueError(fmt::format("arm {}: bf16: expected layers 0 to {}, found {}", text(),
                                   num_layers - 1, side.layer));
    }
    LayerFormat& format = out[static_cast<size_t>(side.layer)];
    if (side.k) format.k = Format::kBf16;
    if (side.v) format.v = Format::kBf16;
  }
  return out;
}

ArmSpec ArmSpec::with_bf16_layers(const std::vector<int>& layers) const {
  ArmSpec out = *this;
  out.bf16.clear();
  for (const int layer : layers) out.bf16.push_back({layer, true, true});
  std::ranges::sort(out.bf16, {}, &Bf16Side::layer);
  return out;
}

}  // namespace kv
