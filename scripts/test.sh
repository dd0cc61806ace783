#!/usr/bin/env bash
# One optimised build and the whole test suite. No network but for packages that are missing.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
(($# == 0)) || fail "expected no argument, found '$1'"
install_configure_build_test release
