#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In a guest with the module: programs that came in through /dev/gleam, one of them with a single GPU, go on with the gleamd that comes after
# theirs, killed or restarted, and end with a word on what to do when none comes.
# time-limit: 600
# serial
. "$(dirname "$0")/../lib/e2e.sh"

# A whole system under software emulation, with everybody's deadlines real: minutes on a busy machine.
[ -n "${GLEAM_LONG:-}" ] || skip "takes minutes: make check-long runs it (GLEAM_LONG=1)"
. "$TOP/tests/kmod/kernel.sh"
. "$TOP/tests/kmod/guest.sh"

guest_prepare checksum
guest_run init-restart 570
grep -q '^programs went on with the gleamd after theirs' "$TMP/guest.log" || fail "the guest did not come to its end"
