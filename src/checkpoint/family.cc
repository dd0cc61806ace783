#include "checkpoint/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "kvscale/error.h"

namespace kv {

const Family* find_family(std::string_view hf_type) {
  const auto found = std::ranges::find(kFamilies, hf_type, &Family::hf_type);
  return found == kFamilies.end() ? nullptr : found;
}

const Family* find_gguf_family(std::string_view architecture, bool has_experts) {
  const auto found = std::ranges::find_if(kFamilies, [&](const Family& family) {
    return !family.gguf.empty() && family.gguf == architecture &&
           (family.experts != ExpertNames::kNone) == has_experts;
  });
  return found == kFamilies.end() ? nullptr : found;
}

const Family& family_of(const ModelSpec& spec) {
  const Family* family = find_family(spec.architecture);
  if (family != nullptr) return *family;
  throw UnsupportedError(fmt::format("architecture: expected one of {}, found {:?}",
                                     known_hf_types(), spec.architecture));
}

std::string known_hf_types() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.hf_type);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string known_gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) {
    if (family.gguf.empty()) continue;
    if (std::ranges::find(names, family.gguf) == names.end()) names.push_back(family.gguf);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void take_family_parts(const Family& family, ModelSpec& spec) {
  spec.activation = family.activation;
  spec.has_qk_norm = family.has_qk_norm;
  spec.has_post_norms = family.has_post_norms;
}

std::vector<int> windows_by_list(std::vector<int> windows) {
  const bool has_any = std::ranges::any_of(windows, [](int window) { return window > 0; });
  return has_any ? std::move(windows) : std::vector<int>();
}

std::vector<int> windows_by_rule(const Family& family, int num_layers, int window, int first) {
  std::vector<int> windows(static_cast<size_t>(num_layers), 0);
  for (int layer = 0; layer < num_layers; ++layer) {
    const bool has_window =
        family.windows == WindowRule::kAll ||
        (family.windows == WindowRule::kAllButEvery && (layer + 1) % family.full_every != 0) ||
        (family.windows == WindowRule::kFromMaxLayer && layer >= first);
    if (has_window) windows[static_cast<size_t>(layer)] = window;
  }
  return windows_by_list(std::move(windows));
}

}  // namespace kv
