#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# What a program has beside plain memory moves with it: arrays, textures and surfaces, managed memory, physical memory of its own,
# printf, a failure that it has not been told of, two GPUs that reach each other. What can't move is refused with its reason, and goes
# on. Results are those of a program that stays, bit for bit.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/carried tests/cuda/greens

export GLEAM_SOFTGPU_MEMORY=512M GLEAM_SOFTGPU_DEVICES=2
PORT=$(free_port) B_PORT=$(free_port)
path_up -- --server "b=127.0.0.1:$B_PORT"
start_bg b "$OUT/bin/gleamd" --no-fuse --socket "$TMP/b.sock" --listen "127.0.0.1:$B_PORT" --driver "$OUT/lib/libsoftcuda.so" \
	--key "$TMP/key" --log debug
wait_for 15 grep -q 'is warm' "$TMP/b.log" || fail "no warm worker: $(tail -5 "$TMP/b.log")"
move() { "$OUT/bin/gleamctl" migrate "$@" --socket "$TMP/gleamd.sock"; }
# start NAME ARGUMENT...
start() {
	local name=$1
	shift
	start_bg "$name" env GLEAM_SERVER=gpu GLEAM_GPUS="${GPUS:-1}" LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/carried" "$@"
}
started() { wait_for 30 grep -q step "$TMP/$1.log" || fail "$1 does not start: $(tail -5 "$TMP/$1.log")"; }
right() { # NAME
	wait "$(bg_pid "$1")" || fail "$1: $(grep -E 'wrong|failed' "$TMP/$1.log" | head -5; grep -h move: "$TMP"/*.log | tail -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$1.log" || fail "$1: $(tail -3 "$TMP/$1.log")"
}
results() { grep -E '^(block|checksum)' "$1"; }

# ---- the same numbers, moved or not ----
steps=3000
[ -z "${GLEAM_LONG:-}" ] || steps=40000
cuda carried $steps 3 >"$TMP/still.out" || fail "$(grep -v ^block "$TMP/still.out" | tail -3)"
start moved $steps 3 "$TMP/go" "$TMP/moved-once"
touch "$TMP/go"
started moved
moves=0
most=8
[ -z "${GLEAM_LONG:-}" ] || most=100
tries=0
# In the middle it waits until it was moved, however quick it is.
while alive "$(bg_pid moved)" && [ $moves -lt $most ] && [ $((tries++)) -lt 300 ]; do
	if move "$(bg_pid moved)" $([ $((moves % 2)) = 0 ] && echo b || echo gpu) >"$TMP/move.out" 2>&1; then
		moves=$((moves + 1))
		touch "$TMP/moved-once"
	elif alive "$(bg_pid moved)"; then
		grep -qE "did not come to an end|no program of yours|session" "$TMP/move.out" || fail "move $moves: $(cat "$TMP/move.out")"
	fi
done
right moved
say "moved $moves times: $(cat "$TMP/move.out")"
[ $moves -ge 1 ] || fail "it was not moved"
same "results of the moved program" "$(results "$TMP/still.out")" "$(results "$TMP/moved.log")"

# ---- a failure that is told after the move ----
start late latch "$TMP/late"
started late
move "$(bg_pid late)" b >"$TMP/move.out" 2>&1 || fail "a failure that is told later: $(cat "$TMP/move.out")"
touch "$TMP/late"
right late

# ---- two GPUs that reach each other ----
GPUS=2 start pair peers "$TMP/pair"
started pair
for to in b gpu b; do
	move "$(bg_pid pair)" $to >"$TMP/move.out" 2>&1 || fail "two GPUs to $to: $(cat "$TMP/move.out")"
done
touch "$TMP/pair"
right pair

# ---- linking under way ----
start_bg links env GLEAM_SERVER=gpu LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/links" moves "$TMP/links"
started links
for to in b gpu; do
	move "$(bg_pid links)" $to >"$TMP/move.out" 2>&1 || fail "links to $to: $(cat "$TMP/move.out")"
done
touch "$TMP/links"
right links

# ---- parts of a GPU, and pools: the same settings, and the same memory ----
start_bg greens env GLEAM_SERVER=gpu LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/greens" moves "$TMP/greens"
start pools pools "$TMP/pools"
for name in greens pools; do
	started $name
	for to in b gpu b; do
		for try in 1 2 3 4 5; do
			move "$(bg_pid $name)" $to >"$TMP/move.out" 2>&1 && break
			[ $try -lt 5 ] && grep -q "did not come to an end" "$TMP/move.out" || fail "$name to $to: $(cat "$TMP/move.out")"
		done
		steps=$(grep -c step "$TMP/$name.log")
		wait_for 20 eval '[ $(grep -c step "$TMP/$name.log") -gt '"$steps"' ]' || fail "$name doesn't go on: $(tail -3 "$TMP/$name.log")"
	done
	touch "$TMP/$name"
	right $name
done

# ---- what stays where it is ----
for what in lost:"its context is lost" shared:"it has shared memory"; do
	name=${what%%:*} why=${what#*:}
	start "$name" "$name" "$TMP/$name"
	started "$name"
	same "status of a move ($name)" 1 "$(status_of move "$(bg_pid "$name")" b)"
	grep -q "$why" "$TMP/status.out" || fail "$name: $(cat "$TMP/status.out")"
	touch "$TMP/$name"
	right "$name"
done
stop_bg b || fail "b ended with status $?: $(tail -5 "$TMP/b.log")"
path_down
