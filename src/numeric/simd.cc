#include "numeric/simd.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdint>

#include "hwy/targets.h"
#include "kvscale/error.h"
#include "numeric/dispatch.h"

namespace kv {
namespace {

constexpr std::string_view kBf16Name = "avx3_bf16";

std::atomic<bool> bf16_is_forced_off{false};

bool machine_has_avx512_bf16() {
#if HWY_ARCH_X86
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

std::string name_of(int64_t target) {
  std::string name = hwy::TargetName(target);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

struct Choice {
  std::string name;
  int64_t highway_target;
};

/// Best first, whatever is forced now.
const std::vector<Choice>& choices() {
  static const std::vector<Choice> found = [] {
    std::vector<Choice> out;
    hwy::SetSupportedTargetsForTest(0);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (target == HWY_AVX3_DL && machine_has_avx512_bf16()) {
        out.push_back({std::string(kBf16Name), target});
      }
      out.push_back({name_of(target), target});
    }
    return out;
  }();
  return found;
}

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const Choice& choice : choices()) names.push_back(choice.name);
  return names;
}

void force_simd_target(std::string_view name) {
  if (name.empty()) {
    hwy::SetSupportedTargetsForTest(0);
    bf16_is_forced_off = false;
    return;
  }
  for (const Choice& choice : choices()) {
    if (choice.name != name) continue;
    hwy::SetSupportedTargetsForTest(choice.highway_target);
    bf16_is_forced_off = name != kBf16Name;
    return;
  }
  throw UnsupportedError(fmt::format("SIMD target \"{}\": this machine and build have {}", name,
                                     fmt::join(simd_targets(), ", ")));
}

std::string active_simd_target() {
  if (avx512_bf16_allowed()) return std::string(kBf16Name);
  return name_of(dispatched_highway_target());
}

bool avx512_bf16_allowed() {
  static const bool has = machine_has_avx512_bf16();
  return has && !bf16_is_forced_off && dispatched_highway_target() == HWY_AVX3_DL;
}

}  // namespace kv
