#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# A program that trains is moved to another machine's GPU, to its own machine's and back, and between two GPUs of one server: its losses are those
# of one that stays, bit for bit, and pointers that lie in device memory lead where they did. A GPU of another kind takes nothing, two moves of
# one program at a time aren't begun, and what is told of each move is as its schema says.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/train

export GLEAM_SOFTGPU_MEMORY=256M
B_PORT=$(free_port) OLD_PORT=$(free_port) OWN_PORT=$(free_port)
GLEAM_SOFTGPU_DEVICES=2 path_up -- --server "b=127.0.0.1:$B_PORT" --server "old=127.0.0.1:$OLD_PORT" --server "own=127.0.0.1:$OWN_PORT" \
	--listen "127.0.0.1:$OWN_PORT" --driver "$OUT/lib/libsoftcuda.so"
node_up() { # NAME PORT [ENV...]
	start_bg "$1" env "${@:3}" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$1.sock" --listen "127.0.0.1:$2" \
		--driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" --log debug
	wait_for 15 grep -q 'is warm' "$TMP/$1.log" || fail "no warm worker: $(tail -5 "$TMP/$1.log")"
}
node_up b "$B_PORT"
node_up old "$OLD_PORT" GLEAM_SOFTGPU_CAPABILITY=7.0
move() { "$OUT/bin/gleamctl" migrate "$@" --socket "$TMP/gleamd.sock"; }

GLEAM_SERVER=b cuda train 400 - 8 1 >"$TMP/still.out" || fail "$(tail -3 "$TMP/still.out")"
start_bg train env GLEAM_SERVER=b LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/train" 400 "$TMP/enough" 8 1
wait_for 30 grep -q '^loss 3 ' "$TMP/train.log" || fail "it does not start: $(cat "$TMP/train.log")"
pid=$(bg_pid train)
for to in own b gpu:1 gpu:0 own gpu:1 b; do
	move "$pid" $to --json >"$TMP/move.json" || fail "to $to: $(tail -3 "$TMP/broker.log")"
	python3 "$TOP/tests/lib/schema.py" "$TOP/docs/json/gleamctl.schema.json" migrate "$TMP/move.json" || fail "$(cat "$TMP/move.json")"
	same "where it is" "${to%:*}" "$(json to <"$TMP/move.json")"
	same "whose move it was" "$pid" "$(json pid <"$TMP/move.json")"
	# Zeros aside all of it went, and the steps are all the time there was.
	python3 -c 'import json, sys
m = json.load(open(sys.argv[1]))
assert m["bytes"] + m["bytes_avoided"] > 8 << 20 and m["bytes_held"] <= m["bytes"], m
assert abs(sum(m["steps"].values()) - m["total_s"]) < 0.01 and m["pause_ms"] / 1000 <= m["total_s"], m' "$TMP/move.json"
done

# ---- wrong wishes: nothing is touched ----
same "another kind of GPU" 1 "$(status_of move "$pid" old)"
grep -q "^gleamctl: old: .*GPU" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
kill -STOP "$(bg_pid old)"
start_bg first "$OUT/bin/gleamctl" migrate "$pid" old --socket "$TMP/gleamd.sock"
moving() { "$OUT/bin/gleamctl" clients --json --socket "$TMP/gleamd.sock" | json clients.0.state | grep -q moving; }
wait_for 10 moving || fail "it is not moved"
same "a second wish" 1 "$(status_of move "$pid" gpu)"
grep -q "is being moved already" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
kill -CONT "$(bg_pid old)"
status=0
wait "$(bg_pid first)" || status=$?
same "the first wish" 1 $status

wait_for 60 grep -q '^loss 399 ' "$TMP/train.log" || fail "it does not go on: $(tail -3 "$TMP/train.log")"
touch "$TMP/enough"
wait "$pid" || fail "$(grep -v '^loss' "$TMP/train.log")"
grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/train.log" || fail "$(tail -3 "$TMP/train.log")"
diff <(grep '^loss' "$TMP/still.out") <(head -n 600 "$TMP/train.log" | grep "^loss" | awk "NR <= 400") >"$TMP/diff" || fail "losses differ: $(head -5 "$TMP/diff")"
for name in b old; do
	grep -h error: "$TMP/$name.log" && fail "$name has complained"
	stop_bg "$name" || fail "$name ended with status $?"
done
path_down
