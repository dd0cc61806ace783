#!/usr/bin/env bash
# The whole test suite under AddressSanitizer and UndefinedBehaviorSanitizer.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
(($# == 0)) || fail "expected no argument, found '$1'"
install_configure_build_test asan
