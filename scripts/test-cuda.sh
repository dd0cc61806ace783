#!/usr/bin/env bash
# On a machine with a Hopper GPU: the op tests on the CUDA twins, compute-sanitizer on small shapes, then the bench
# tables. Writes everything to one report (default build/cuda/report.md), which docs/kernels/ keeps with its date.
#
#   scripts/test-cuda.sh [--report FILE] [--binaries DIR]   DIR: programs built elsewhere, instead of the preset's
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

binaries='' report=$KV_ROOT/build/cuda/report.md
while (($# > 0)); do
  case $1 in
    --report) report=$2 && shift 2 ;;
    --binaries) binaries=$2 && shift 2 ;;
    *) fail "expected --report FILE or --binaries DIR, found '$1'" ;;
  esac
done

if [[ -z $binaries ]]; then
  configure_and_build cuda kv_cuda_test kvscale
  binaries=$(build_folder cuda)/collected
  mkdir -p "$binaries"
  ln -sf "$(build_folder cuda)/tests/cuda/kv_cuda_test" "$(build_folder cuda)/src/cli/kvscale" "$binaries"
fi
mkdir -p "$(dirname "$report")"
status=0

# section TITLE COMMAND...: its output into the report as it is; a failure fails the script at its end.
section() {
  local title=$1
  shift
  step "$title"
  { printf '\n## %s\n\n' "$title"; } >>"$report"
  "$@" 2>&1 | tee -a "$report" || status=1
}

tests() {
  printf '```\n'
  "$binaries/kv_cuda_test" --gtest_brief=1 || return 1
  printf '```\n'
}

# Small shapes: a checked kernel runs a hundred times slower.
sanitized() {
  printf '```\n'
  compute-sanitizer --error-exitcode 1 --tool "$1" "$binaries/kv_cuda_test" \
    --gtest_filter='*OutputInBf16*:*Fp8Math*:StoreKvCuda.ManyTokens:*ReachesTheResult*' | tail -n 3 || return 1
  printf '```\n'
}

bench() { "$binaries/kvscale" bench "$1" --device cuda "${@:2}"; }

printf '# CUDA twins, %s\n\n%s\n' "$(date -u +%Y-%m-%d)" \
  "$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,power.limit --format=csv,noheader)" >"$report"
section 'Tests' tests
section 'compute-sanitizer memcheck' sanitized memcheck
section 'compute-sanitizer racecheck' sanitized racecheck
section 'Decode, 32 query heads, 8 KV heads, head_dim 128, page 16' bench attention
section 'Decode, math=fp8' bench attention --math fp8
section 'Decode, page 16, HND' bench attention --hnd --cells 1x8192,8x8192,32x8192
section 'Decode, 64 query heads' bench attention --q-heads 64 --cells 1x8192,8x8192,32x8192
section 'Decode, head_dim 64' bench attention --head-dim 64 --cells 1x8192,8x8192,32x8192
section 'Decode, head_dim 256' bench attention --head-dim 256 --cells 1x8192,8x8192,32x8192
section 'Append' bench append
section 'Prefill' bench attention --phase prefill
section 'Prefill, math=fp8' bench attention --phase prefill --math fp8
printf '\nreport: %s\n' "$report"
exit "$status"
