#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 400
# A running program moves from server to server and to other workers of the same one, again and again, under load, and doesn't notice: its
# results are bit for bit those of one that was never moved. It survives the end of the server that it came from, a lost link behind a
# move, and moves that fail, whoever dies. Wrong wishes are refused with their reason. GLEAM_LONG=1: two hundred moves.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/checksum tests/fault/gleam-chaos

node_up() { # NAME PORT [ENV...]
	local name=$1 port=$2
	shift 2
	start_bg "$name" env "$@" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$name.sock" --listen "127.0.0.1:$port" \
		--driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" --log debug
	wait_for 15 grep -q 'is warm' "$TMP/$name.log" || fail "no warm worker: $(tail -5 "$TMP/$name.log")"
}
export GLEAM_SOFTGPU_MEMORY=512M
PORT=$(free_port) B_PORT=$(free_port) SMALL_PORT=$(free_port) NONE_PORT=$(free_port)
chaos=$TMP/chaos.sock
start_bg chaos "$OUT/tests/fault/gleam-chaos" --listen 127.0.0.1:0 --target "127.0.0.1:$B_PORT" --control "$chaos"
wait_for 5 grep -q listening "$TMP/chaos.log"
PROXY=$(sed -n 's/^listening //p' "$TMP/chaos.log")
path_up -- --server "b=127.0.0.1:$PROXY" --server "small=127.0.0.1:$SMALL_PORT" --server "none=127.0.0.1:$NONE_PORT"
node_up b "$B_PORT"
node_up small "$SMALL_PORT" GLEAM_SOFTGPU_MEMORY=64M
ctl() { "$OUT/bin/gleamctl" "$@" --socket "$TMP/gleamd.sock"; }
move() { ctl migrate "$@"; }
# refused WHY ARGUMENT...
refused() {
	local why=$1
	shift
	same "status of gleamctl migrate $*" 1 "$(status_of move "$@")"
	grep -q -- "$why" "$TMP/status.out" || fail "migrate $*: $(cat "$TMP/status.out")"
}
# start NAME STEPS SEED: until $TMP/enough
start() {
	start_bg "$1" env GLEAM_SERVER="${4:-gpu}" LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/checksum" "$2" "$3" 0 "$TMP/enough"
	wait_for 30 grep -q step "$TMP/$1.log" || fail "$1 does not start: $(cat "$TMP/$1.log")"
}
right() { # NAME
	wait "$(bg_pid "$1")" || fail "$1: $(grep -v '^step' "$TMP/$1.log" | tail -5; grep -h move: "$TMP"/*.log | tail -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$1.log" || fail "$1: $(tail -3 "$TMP/$1.log")"
}
server_of() { ctl clients --json | python3 -c 'import json, sys
print([c["server"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])][0])' "$1"; }

# ---- the same numbers, moved or not ----
cuda checksum 1500 5 >"$TMP/still.out" || fail "$(tail -3 "$TMP/still.out")"
touch "$TMP/enough"
start moved 1500 5
moves=0
while alive "$(bg_pid moved)" && [ $moves -lt 6 ]; do
	move "$(bg_pid moved)" $([ $((moves % 2)) = 0 ] && echo b || echo gpu) >"$TMP/move.out" 2>&1 || break
	moves=$((moves + 1))
done
right moved
say "moved $moves times: $(cat "$TMP/move.out")"
[ $moves -ge 1 ] || fail "it was not moved"
same "checksum of the moved program" "$(grep checksum "$TMP/still.out")" "$(grep checksum "$TMP/moved.log")"

# ---- again and again, two at a time, also to another worker of the same server ----
rm "$TMP/enough"
start first 10 1
start second 10 2
turns=8
[ -z "${GLEAM_LONG:-}" ] || turns=100
RANDOM=5 moves=0
for ((i = 0; i < turns; i++)); do
	for name in first second; do
		to=$([ $((RANDOM % 2)) = 0 ] && echo b || echo gpu)
		if move "$(bg_pid $name)" $to >"$TMP/move.out" 2>&1; then
			moves=$((moves + 1))
			same "server of $name" $to "$(server_of "$(bg_pid $name)")"
		else
			grep -q "did not come to an end" "$TMP/move.out" || fail "move $i of $name: $(cat "$TMP/move.out")"
		fi
	done
done
say "$moves moves of $((2 * turns)): $(cat "$TMP/move.out")"
[ $moves -ge $turns ] || fail "too few moves"

# ---- wrong wishes: nothing is touched ----
pid=$(bg_pid first)
same "usage" 2 "$(status_of move)"
same "usage" 2 "$(status_of move x)"
same "usage" 2 "$(status_of move "$pid" gpu:x)"
refused "no program of yours" 999999
refused "no program of yours" "$(bg_pid chaos)"
refused "there is no server" "$pid" nowhere
refused "can't be reached" "$pid" none
start_bg secret env GLEAM_SERVER=gpu LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/secret" write
wait_for 20 grep -q written "$TMP/secret.log"
refused "small: its GPU has too little free memory" "$(bg_pid secret)" small
stop_bg secret KILL || true
refused "small has 1 GPU, numbered from 0" "$pid" small:7
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	chmod 666 "$TMP/gleamd.sock"
	same "another user's wish" 1 "$(status_of setpriv --reuid 65533 --regid 65533 --clear-groups "$OUT/bin/gleamctl" migrate "$pid" b \
		--socket "$TMP/gleamd.sock")"
	grep -q "no program of yours" "$TMP/status.out" || fail "another user's wish: $(cat "$TMP/status.out")"
fi

# ---- whoever dies in the middle, the program goes on or ends clean ----
move "$(bg_pid second)" gpu >/dev/null || move "$(bg_pid second)" gpu >/dev/null || fail "second does not come back"
for wait in 0.02 0.1 0.2; do
	start_bg mover "$OUT/bin/gleamctl" migrate "$(bg_pid second)" b --socket "$TMP/gleamd.sock"
	sleep $wait
	worker=$(sed -n "s/.*pid $(bg_pid second)): worker \([0-9]*\)$/\1/p" "$TMP/b.log" | tail -1)
	[ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null || true
	wait "$(bg_pid mover)" || true
	if [ "$(server_of "$(bg_pid second)")" = b ]; then
		break # it had come already: its worker was killed
	fi
done
alive "$(bg_pid first)" || fail "another program's worker died with it"

# ---- a lost link behind a move, and the end of the server that it came from ----
for try in 1 2 3; do
	[ "$(server_of "$pid")" = b ] || move "$pid" b >"$TMP/move.out" 2>&1 || true
done
same "server" b "$(server_of "$pid")"
for i in 1 2 3; do
	"$OUT/tests/fault/gleam-chaos" ctl "$chaos" cut >/dev/null
	sleep 0.3
done
grep -q "pid $pid .*goes on after" "$TMP/broker.log" || fail "the link was not lost"
stop_bg node KILL || true
sleep 0.5
touch "$TMP/enough"
right first
wait "$(bg_pid second)" || grep -qE 'CUDA_ERROR_DEVICE_UNAVAILABLE|^[1-9][0-9]* passed, 0 failed' "$TMP/second.log" || fail "second: $(tail -3 "$TMP/second.log")"
node_up node "$PORT"
path_down
