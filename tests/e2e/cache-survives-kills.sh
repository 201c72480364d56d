#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 1800
# The node is killed (SIGKILL) at random points of uploads, again and again: whatever is in its cache afterwards is right, nothing is
# left half written, and the next load has the right bytes. GLEAM_LONG=1: 200 times instead of a dozen.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built bin/gleamctl tests/cuda/weights
kills=12
[ -z "${GLEAM_LONG:-}" ] || kills=200
export GLEAM_CACHE=on
PORT=$(free_port)
printf '[cache]\nmemory = 128M\ndisk = 100M\ndir = %s\n' "$TMP/node" >"$TMP/node.conf"
printf '[cache]\ndir = %s\n' "$TMP/client" >"$TMP/client.conf"
node_start() {
	start_bg node "$OUT/bin/gleamd" --config "$TMP/node.conf" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" \
		--driver softgpu --no-fuse --warm 1
	wait_for 20 log_has node "is ready" || fail "$(cat "$TMP/node.log")"
	# A daemon that has seen it go so often would give it no programs.
	client_start --config "$TMP/client.conf" --no-fuse --grace 0
	wait_for 30 eval '"$OUT/bin/gleamctl" cache 2>/dev/null | grep -q "^lab  *on"' || fail "no link again: $(cat "$TMP/client.log")"
}
for i in 1 2 3 4; do
	head -c $((6000000 + i * 1700000)) /dev/urandom >"$TMP/model$i"
done
sleep 2.2
for ((turn = 0; turn < kills; turn++)); do
	node_start
	mode=mapped
	[ $((turn % 3)) != 2 ] || mode=heap
	program weights "$TMP/model$((turn % 4 + 1))" $mode >"$TMP/program.out" 2>&1 &
	pid=$!
	sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
	stop_bg node KILL 2>/dev/null || true
	# It fails like a program whose device was lost, or it was done before; it never has wrong bytes.
	wait $pid || true
	stop_bg client || fail "the client daemon ended with status $?: $(tail -5 "$TMP/client.log")"
	! grep -q 'wrong' "$TMP/program.out" || fail "turn $turn: $(cat "$TMP/program.out")"
done
node_start
"$OUT/bin/gleamctl" cache verify lab all || fail "something in the cache was damaged"
same "damaged chunks" 0 "$("$OUT/bin/gleamctl" cache --json | json servers.0.damaged)"
left=$(find "$TMP/node" -name '*.new' | wc -l)
same "files that were begun" 0 "$left"
for i in 1 2 3 4; do
	program weights "$TMP/model$i" mapped >"$TMP/program.out" 2>&1 || fail "model $i: $(cat "$TMP/program.out")"
done
say "$kills kills; $(find "$TMP/node" -name '*-*' -type f | wc -l) chunks on disk, all of them right"
soft_down
