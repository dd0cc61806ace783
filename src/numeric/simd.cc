#include "numeric/simd.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdint>

#include "kvscale/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/simd.cc"
#include "hwy/foreach_target.h"
// highway.h must follow foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

int64_t compiled_target() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv {
namespace {

HWY_EXPORT(compiled_target);

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
  return name_of(HWY_DYNAMIC_DISPATCH(compiled_target)());
}

bool avx512_bf16_allowed() {
  static const bool has = machine_has_avx512_bf16();
  return has && !bf16_is_forced_off && HWY_DYNAMIC_DISPATCH(compiled_target)() == HWY_AVX3_DL;
}

}  // namespace kv
#endif  // HWY_ONCE
