#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# A killed client's worker ends at once and its device memory is free again; what the next client gets is all zero.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

export GLEAM_SOFTGPU_MEMORY=512M GLEAM_SOFTGPU_LEDGER=$TMP/ledger
path_up
workers() { pgrep -c -P "$(bg_pid node)" || true; }
before=$(workers)
for turn in 1 2 3; do
	start_bg "secret$turn" env LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/secret" write
	wait_for 20 grep -q written "$TMP/secret$turn.log" || fail "no secret: $(cat "$TMP/secret$turn.log")"
	kill -9 "$(bg_pid "secret$turn")"
	# Most of the device is asked for: it can only be there if the dead client's memory is.
	cuda secret look || fail "turn $turn: $(cat "$TMP/node.log" | tail -5)"
done
wait_for 10 eval '[ "$(workers)" -le "$before" ]' || fail "workers are left"
path_down
