# Sourced by the other scripts: where things are, how many jobs run at once, and what ccache needs to know.
# shellcheck shell=bash
set -euo pipefail

KV_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
KV_JOBS=${KV_JOBS:-$(nproc)}

# A precompiled header's time and defines do not make another object; without these ccache misses every test.
export CCACHE_SLOPPINESS=pch_defines,time_macros
# Paths below the checkout are hashed relative to it: two checkouts share one cache.
export CCACHE_BASEDIR=$KV_ROOT

step() { printf '\n== %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# build_folder PRESET: where CMakePresets.json puts a preset's build.
build_folder() { printf '%s/build/%s' "$KV_ROOT" "$1"; }

# configure_and_build PRESET [TARGET...]: all targets when none is named.
configure_and_build() {
  local preset=$1
  shift
  local targets=()
  (($# == 0)) || targets=(--target "$@")
  step "configure $preset"
  (cd "$KV_ROOT" && cmake --preset "$preset" --log-level=WARNING)
  step "build $preset with $KV_JOBS jobs"
  (cd "$KV_ROOT" && cmake --build --preset "$preset" -j "$KV_JOBS" "${targets[@]}")
}

# run_tests PRESET: CTest's closing lines are the last but for the reasons of skipped tests; fails when a test fails.
run_tests() {
  local preset=$1 status=0
  step "test $preset"
  (cd "$KV_ROOT" && ctest --preset "$preset" -j "$KV_JOBS") || status=$?
  local skipped
  skipped=$(grep -A1 ': Skipped$' "$(build_folder "$preset")/Testing/Temporary/LastTest.log" || true)
  [[ -z $skipped ]] || printf '\nskipped, and why:\n%s\n' "$skipped"
  return "$status"
}

# install_configure_build_test PRESET: what scripts/test.sh and scripts/test-asan.sh do.
install_configure_build_test() {
  local preset=$1 status=0
  "$KV_ROOT/scripts/install-packages.sh"
  configure_and_build "$preset"
  run_tests "$preset" || status=$?
  printf '\n%s: %d min %02d s from packages to tests\n' "$preset" $((SECONDS / 60)) $((SECONDS % 60))
  return "$status"
}
