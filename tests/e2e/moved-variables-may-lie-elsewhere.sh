#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# A driver puts variables of modules where it likes, and another worker's puts them elsewhere. A program moves all the same if nobody outside of
# the driver can know where they lay; else it stays, is told by what, and goes on. Where the first uses are the same they lie at the same places.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/variables

node_up() { # NAME PLACES
	local port
	port=$(free_port)
	start_bg "$1" env GLEAM_SOFTGPU_PLACES="$2" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$1.sock" --listen "127.0.0.1:$port" \
		--driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" --log debug
	servers="$servers --server $1=127.0.0.1:$port"
}
export GLEAM_SOFTGPU_MEMORY=512M GLEAM_SOFTGPU_PLACES=0 GLEAM_SOFTGPU_DEVICES=2
servers=
umask 077
"$OUT/bin/gleamctl" key new "$TMP/key" >/dev/null
node_up a 0
node_up same 0
node_up further 3
node_up codes 0,5
for node in a same further codes; do
	wait_for 15 grep -q 'is warm' "$TMP/$node.log" || fail "no warm worker: $(tail -5 "$TMP/$node.log")"
done
# shellcheck disable=SC2086
start_bg broker "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" $servers --key "$TMP/key" --log debug
wait_for 10 grep -q "is ready" "$TMP/broker.log" || fail "no broker: $(tail -5 "$TMP/broker.log")"
export GLEAM_SOCKET="$TMP/gleamd.sock"
# On a busy machine a program's work may not end in time: then nothing was tried.
move() {
	local result=1
	for _ in 1 2 3 4 5; do
		"$OUT/bin/gleamctl" migrate "$@" --socket "$TMP/gleamd.sock" >"$TMP/tried.out" 2>&1 && result=0 && break
		grep -q "did not come to an end" "$TMP/tried.out" || break
	done
	cat "$TMP/tried.out"
	return $result
}
# start WHAT [GPUS]
start() {
	rm -f "$TMP/end"
	start_bg "$1" env GLEAM_SERVER=a GLEAM_GPUS="${2:-1}" LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/variables" "$1" "$TMP/end"
	wait_for 30 grep -q 'step 10' "$TMP/$1.log" || fail "$1 does not start: $(tail -5 "$TMP/$1.log")"
}
right() { # WHAT
	touch "$TMP/end"
	wait "$(bg_pid "$1")" || fail "$1: $(grep -E 'wrong|failed' "$TMP/$1.log" | head -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$1.log" || fail "$1: $(tail -3 "$TMP/$1.log")"
}
moves() { # WHAT TO...
	local what=$1 to
	shift
	for to in "$@"; do
		move "$(bg_pid "$what")" "$to" >"$TMP/move.out" 2>&1 || fail "$what to $to: $(cat "$TMP/move.out"; grep -h 'move:' "$TMP/$to.log" | tail -5)"
	done
}
# refused WHAT TO WHY: and goes on
refused() {
	local steps
	same "status of a move ($1 to $2)" 1 "$(status_of move "$(bg_pid "$1")" "$2")"
	grep -q -- "$3" "$TMP/status.out" || fail "$1 to $2: $(cat "$TMP/status.out")"
	grep -q -- "$3" "$TMP/$2.log" || fail "$1 to $2: its log says nothing of it"
	steps=$(grep -c step "$TMP/$1.log")
	more() { [ "$(grep -c step "$TMP/$1.log")" -gt $((steps + 1)) ]; }
	wait_for 20 more "$1" || fail "$1 doesn't go on"
}

# ---- nobody knows: to and fro, with functions elsewhere, too, that only tables of classes have ----
start free
moves free further a codes further same
grep -q 'variables of modules lie elsewhere than before' "$TMP/further.log" || fail "they lay where they had lain: nothing was tested"
right free

# ---- the program has asked ----
start known
refused known further '(history) would lie at 0x.* which the program knows'
moves known same
refused known further 'which the program knows'
moves known a
right known

# ---- variables of a library ----
start library
moves library further a codes
right library
start contexts 2
moves contexts further a codes
right contexts
start library-known
refused library-known further '(history) would lie at 0x.* which the program knows'
moves library-known same
refused library-known further 'which the program knows'
right library-known

# ---- something points there ----
start memory
refused memory further '(counter) would lie at 0x.*, where GPU memory at 0x.* points to'
moves memory same
right memory
start host
refused host further '(counter) would lie at 0x.*, where page-locked memory at 0x.* points to'
right host
start graph
refused graph further '(counter) would lie at 0x.*, where a captured or built graph'
moves graph same
right graph
start variable
refused variable further '(counter) would lie at 0x.*, where another one (stored) points to'
moves variable same
right variable

# ---- addresses of functions ----
start table
refused table codes "(changes) has a function's address at byte"
moves table further
right table
start function
# (Its address is one of another module's functions, too.)
refused function codes "has a function's address at byte .* which memory holds"
moves function further
right function

for node in a same further codes broker; do
	stop_bg "$node" || fail "$node ended with status $?: $(tail -5 "$TMP/$node.log")"
done
