#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# gleamctl checkpoint --every outlives its gleamd, killed or restarted: the new one knows of no checkpoint, so another is made as soon as the program goes
# on, and not when the interval is over. From that one the program comes back when its server is killed.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/carried

export GLEAM_SOFTGPU_MEMORY=512M
PORT=$(free_port) B_PORT=$(free_port)
printf '[link]\ngrace = 10\nhold = 60\n[key]\nfile = %s\n[servers]\ngpu = 127.0.0.1:%d\nb = 127.0.0.1:%d\n' \
	"$TMP/key" "$PORT" "$B_PORT" >"$TMP/broker.conf"
path_up -- --config "$TMP/broker.conf"
start_bg b "$OUT/bin/gleamd" --no-fuse --socket "$TMP/b.sock" --listen "127.0.0.1:$B_PORT" --driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key"
wait_for 15 grep -q 'is warm' "$TMP/b.log" || fail "no warm worker: $(tail -5 "$TMP/b.log")"
ctl() { "$OUT/bin/gleamctl" "$@" --socket "$TMP/gleamd.sock"; }
is_state() { # PID STATE
	ctl clients --json | python3 -c 'import json, sys
sys.exit([c["state"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])] != [sys.argv[2]])' "$1" "$2"
}
export CARRIED_SAFE=1 CARRIED_QUIET=1
start_bg goes env GLEAM_SERVER=gpu LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/carried" 300 7 "$TMP/go" "$TMP/pause"
pid=$(bg_pid goes)
wait_for 20 is_state "$pid" live || fail "$(cat "$TMP/goes.log")"
start_bg every "$OUT/bin/gleamctl" checkpoint "$pid" "$TMP/c" --every 3600 --socket "$TMP/gleamd.sock"
made() { [ "$(grep -c '^checkpoint of' "$TMP/every.log")" = "$1" ]; }
wait_for 20 made 1 || fail "$(cat "$TMP/every.log")"
count=1
for signal in KILL TERM; do
	stop_bg broker $signal || true
	start_bg broker "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" --server "gpu=127.0.0.1:$PORT" --key "$TMP/key" --log debug \
		--config "$TMP/broker.conf"
	count=$((count + 1))
	wait_for 20 made $count || fail "after SIG$signal: $(cat "$TMP/every.log"; tail -5 "$TMP/broker.log")"
done
same "told" 2 "$(grep -c 'gleamd has ended' "$TMP/every.log")"

# That one is good for something.
touch "$TMP/pause"
stop_bg node KILL || true
wait_for 20 is_state "$pid" held || fail "it is not held: $(ctl clients; tail -5 "$TMP/broker.log")"
ctl restore "$pid" "$TMP/c" b >"$TMP/restore.out" || fail "$(cat "$TMP/restore.out"; tail -5 "$TMP/broker.log")"
touch "$TMP/go"
wait "$pid" || fail "$(grep -v ^block "$TMP/goes.log" | tail -5)"
grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/goes.log" || fail "$(tail -3 "$TMP/goes.log")"
# It ends with the program.
kill -INT "$(bg_pid every)" 2>/dev/null || true
wait "$(bg_pid every)" || fail "gleamctl ended with status $?: $(cat "$TMP/every.log")"
stop_bg b || fail "$(tail -3 "$TMP/b.log")"
stop_bg broker || fail "$(tail -3 "$TMP/broker.log")"
