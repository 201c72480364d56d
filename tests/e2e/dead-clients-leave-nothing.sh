#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# A killed client's worker ends at once and its device memory is free again; what the next client gets is all zero.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

# Workers have a user of their own, who must be able to write it: without it each worker would have the memory for itself.
: >"$TMP/ledger"
chmod 666 "$TMP/ledger"
export GLEAM_SOFTGPU_MEMORY=512M GLEAM_SOFTGPU_LEDGER=$TMP/ledger
path_up
workers() { pgrep -c -P "$(bg_pid node)" || true; }
before=$(workers)
for turn in 1 2 3; do
	start_bg "secret$turn" env LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/secret" write
	wait_for 20 grep -q written "$TMP/secret$turn.log" || fail "no secret: $(cat "$TMP/secret$turn.log")"
	kill -9 "$(bg_pid "secret$turn")"
	# Most of the device is asked for: it can only be there when the dead client's memory is, within a moment.
	looked() {
		cuda secret look >"$TMP/look.out" || true
		! grep -q "somebody else" "$TMP/look.out" || fail "turn $turn: $(cat "$TMP/look.out")"
		grep -q "^7 of 7 chunks" "$TMP/look.out"
	}
	wait_for 15 looked || fail "turn $turn: not the whole device: $(cat "$TMP/look.out"; tail -5 "$TMP/node.log")"
done
wait_for 10 eval '[ "$(workers)" -le "$before" ]' || fail "workers are left"
path_down
