#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// The SIMD targets that this build has and this machine runs, best first; the last is "scalar".
///
/// "amx"        AVX-512 with VBMI, AVX512-BF16 and AMX tiles of BF16 (Sapphire Rapids and later)
/// "avx3_bf16"  AVX-512 with VBMI and AVX512-BF16 (Zen 4, Sapphire Rapids and later)
/// "avx3_dl"    AVX-512 with VBMI (Ice Lake and later)
/// "avx3"       AVX-512 F, BW, DQ, VL
/// "avx2"       AVX2, FMA, F16C
/// "scalar"     one element at a time
std::vector<std::string> simd_targets();

/// Makes every kernel that is dispatched through Highway use this target from the next call on; an
/// empty name goes back to the best. Not to be called while kernels run on other threads.
///
/// Throws UnsupportedError, which lists the machine's targets, if the name is not one of them.
void force_simd_target(std::string_view name);

/// The target that a dispatched call uses now, told by the code of that target itself.
std::string active_simd_target();

/// Whether kernels may use AVX512-BF16: the machine has it, and no lower target is forced. Highway
/// 1.0 has no target of its own for it, so a kernel built for AVX3_DL asks this.
bool avx512_bf16_allowed();

/// Whether kernels may use AMX: the machine and its operating system have it, and no lower target
/// is forced.
bool amx_allowed();

/// What targets and kernels with tiles are called: a build whose tiles are computed in software
/// (KV_EMULATE_AMX) never passes for one with the instructions.
#ifdef KV_EMULATE_AMX
inline constexpr std::string_view kAmxName = "amx_emulated";
#else
inline constexpr std::string_view kAmxName = "amx";
#endif

}  // namespace kv
