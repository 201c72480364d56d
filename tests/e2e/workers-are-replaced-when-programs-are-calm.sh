#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 60
# The successor of a warm worker does not start while the program that has just got it is at work (a driver's start holds up other
# processes' calls), but as soon as that is calm, or has gone.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

PORT=$(free_port)
start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver softgpu --no-fuse --log debug
wait_for 20 log_has node "is warm" || fail "$(cat "$TMP/node.log")"
client_start

warm() { grep -c "is warm" "$TMP/node.log"; }
warm_are() { [ "$(warm)" -ge "$1" ]; }
filled() { sed -n 's/.* filled up \([0-9]*\) ms after.*/\1/p' "$TMP/node.log" | tail -1; }
ms() { date +%s%3N; }

# One that has work outstanding from its beginning to its end: hundreds of launches and one wait. 1.5 s at most. Where others keep the processors
# it may be kept from its first launch for so long that it is calm: then it is tried again.
for try in 1 2 3; do
	began=$(ms)
	program load 1 0 0 700 0 >"$TMP/load.log" || fail "$(cat "$TMP/load.log")"
	took=$(($(ms) - began))
	wait_for 20 warm_are $((try + 1)) || fail "no worker took the place of the one before: $(cat "$TMP/node.log")"
	least=$(((took < 1500 ? took : 1500) * 7 / 10))
	say "a program of $took ms, its worker's place filled after $(filled) ms"
	[ "$(filled)" -lt "$least" ] || break
	[ $try -lt 3 ] || fail "the place was filled after $(filled) ms, while the program, of $took ms, was at work"
done

# One that has a context and does nothing on the GPU: while it runs.
LD_LIBRARY_PATH=$OUT/lib timeout "$(slow 50)" "$OUT/tests/cuda/load" 1 0 0 0 30000000 >"$TMP/idle.log" 2>&1 &
idle=$!
wait_for 20 warm_are $((try + 2)) || fail "no worker beside an idle program: $(cat "$TMP/node.log")"
kill -0 $idle 2>/dev/null || fail "the idle program has ended: $(cat "$TMP/idle.log")"
say "beside an idle program after $(filled) ms"
kill $idle
wait $idle 2>/dev/null || true
soft_down
