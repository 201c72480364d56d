#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 60
# Memory that a program registers where its worker has something of its own: devices reach it by another address, and all that is done
# with it is right by either.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/mapped
soft_up
wait_for 20 log_has node "is warm"
# Where workers have their program: the same in each, where addresses aren't made to differ.
worker=$(grep -o 'worker [0-9]* is warm' "$TMP/node.log" | tail -1 | cut -d' ' -f2)
at=$(awk '/gleam-worker/ { print substr($1, 1, index($1, "-") - 1); exit }' "/proc/$worker/maps")
[ -n "$at" ] || fail "worker $worker has no mapping of its program: $(head -3 "/proc/$worker/maps")"
status=0
GLEAM_LOG=1 program mapped at "$at" >"$TMP/mapped.out" 2>&1 || status=$?
[ $status != 77 ] || skip "the address $at is taken in the program, too"
[ $status = 0 ] || fail "$(tail -20 "$TMP/mapped.out")"
grep -q "by another address" "$TMP/mapped.out" || fail "the address $at was free in the worker: $(cat "$TMP/mapped.out")"
say "at $at: $(tail -1 "$TMP/mapped.out")"
soft_down
