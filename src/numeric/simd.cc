#include "numeric/simd.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdint>

#include "hwy/targets.h"
#if HWY_ARCH_X86 && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kvscale/error.h"
#include "numeric/dispatch.h"

namespace kv {
namespace {

constexpr std::string_view kBf16Name = "avx3_bf16";

/// What a kernel built for AVX3_DL may use beyond it.
enum Extensions { kNone, kBf16, kBf16AndAmx };
std::atomic<Extensions> extensions_allowed{kBf16AndAmx};

bool machine_has_avx512_bf16() {
#if HWY_ARCH_X86
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

/// Tiles of BF16, and a kernel that saves them. Linux hands them to a process that asks, once.
bool machine_has_amx() {
#ifdef KV_EMULATE_AMX
  return machine_has_avx512_bf16();
#elif HWY_ARCH_X86 && defined(__linux__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0 || !machine_has_avx512_bf16()) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
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
  Extensions extensions = kNone;
};

/// Best first, whatever is forced now.
const std::vector<Choice>& choices() {
  static const std::vector<Choice> found = [] {
    std::vector<Choice> out;
    hwy::SetSupportedTargetsForTest(0);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (target == HWY_AVX3_DL && machine_has_amx()) {
        out.push_back({std::string(kAmxName), target, kBf16AndAmx});
      }
      if (target == HWY_AVX3_DL && machine_has_avx512_bf16()) {
        out.push_back({std::string(kBf16Name), target, kBf16});
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
    extensions_allowed = kBf16AndAmx;
    return;
  }
  for (const Choice& choice : choices()) {
    if (choice.name != name) continue;
    hwy::SetSupportedTargetsForTest(choice.highway_target);
    extensions_allowed = choice.extensions;
    return;
  }
  throw UnsupportedError(fmt::format("SIMD target \"{}\": this machine and build have {}", name,
                                     fmt::join(simd_targets(), ", ")));
}

std::string active_simd_target() {
  if (amx_allowed()) return std::string(kAmxName);
  if (avx512_bf16_allowed()) return std::string(kBf16Name);
  return name_of(dispatched_highway_target());
}

bool avx512_bf16_allowed() {
  static const bool has = machine_has_avx512_bf16();
  return has && extensions_allowed >= kBf16 && dispatched_highway_target() == HWY_AVX3_DL;
}

bool amx_allowed() {
  static const bool has = machine_has_amx();
  return has && extensions_allowed == kBf16AndAmx && dispatched_highway_target() == HWY_AVX3_DL;
}

}  // namespace kv
