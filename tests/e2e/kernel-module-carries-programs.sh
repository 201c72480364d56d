#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In a guest with the module: a CUDA program runs through /dev/gleam with the socket moved away, is killed there without leaving
# anything, and runs through the socket, too. System calls on both ways are counted where strace is.
# time-limit: 600
# serial
. "$(dirname "$0")/../lib/e2e.sh"

# A whole system under software emulation, with everybody's deadlines real: minutes on a busy machine.
[ -n "${GLEAM_LONG:-}" ] || skip "takes minutes: make check-long runs it (GLEAM_LONG=1)"
. "$TOP/tests/kmod/kernel.sh"
. "$TOP/tests/kmod/guest.sh"

guest_prepare vecadd strace
guest_run init-programs 570
grep -q '^programs came in both ways' "$TMP/guest.log" || fail "the guest did not come to its end"
