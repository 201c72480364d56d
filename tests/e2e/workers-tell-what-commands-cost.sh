#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# With GLEAM_WORKER_COSTS in the daemon's environment a worker tells at its end what frames and calls of the driver cost it, each
# thread's own; without it nothing is told.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

need_built tests/cuda/streams
export GLEAM_WORKER_COSTS=1
path_up
cuda streams >"$TMP/out" || fail "$(cat "$TMP/out")"
wait_for 20 grep -q 'costs: thread .*, cuLaunchKernel: ' "$TMP/node.log" || fail "it tells nothing: $(tail -5 "$TMP/node.log")"
launches=$(sed -n 's/^.*costs: executor, gleamLaunch: \([0-9]*\) frames, between [0-9.]*, fetch [0-9.]*, driver .*/\1/p' "$TMP/node.log")
calls=$(sed -n 's/^.*costs: thread gleam-worker, cuLaunchKernel: \([0-9]*\) calls, .*/\1/p' "$TMP/node.log")
[ "${launches:-0}" -ge 8 ] || fail "no line about launches: $(grep costs: "$TMP/node.log")"
# What was parked at first is launched later, outside of its own frame; nothing is launched twice.
same "launches of the driver" "$launches" "$calls"
path_down

export GLEAM_WORKER_COSTS=0
path_up
cuda streams >"$TMP/out" || fail "$(cat "$TMP/out")"
path_down
grep -q costs: "$TMP/node.log" && fail "it tells without having been asked: $(grep costs: "$TMP/node.log")"
exit 0
