#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# Programs whose gleamd is killed at any point, or restarted by its administrator, wait and go on with the next one, on the same worker,
# and come to the right result. Without another one every call fails within a second of the time of grace, and the log says what to do.
# GLEAM_LONG=1: a hundred points.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built tests/cuda/checksum tests/cuda/weights

grace=4
path_up --grace $grace -- --grace $grace
# The next gleamd of this machine, with the same settings; each has a log of its own.
turn=0
gleamd_next() {
	turn=$((turn + 1))
	start_bg "next-$turn" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" --server "gpu=127.0.0.1:$PORT" --key "$TMP/key" \
		--log debug --grace $grace "$@"
	BROKER=next-$turn
	wait_for 15 grep -q 'is ready' "$TMP/$BROKER.log" || fail "the next gleamd: $(tail -5 "$TMP/$BROKER.log")"
}
BROKER=broker
gleamd_kill() { stop_bg "$BROKER" KILL || true; }
gleamd_stop() { stop_bg "$BROKER" || fail "gleamd ended with status $?: $(tail -5 "$TMP/$BROKER.log")"; }
went_on() { cat "$TMP"/next-*.log "$TMP/broker.log" | grep -c 'goes on after' || true; }

names=(first second)
run() {
	local i
	rm -f "$TMP/enough"
	for i in 0 1; do
		start_bg "${names[i]}" env GLEAM_LOG=1 LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/checksum" 50 $(($1 * 10 + i)) 0 "$TMP/enough"
		wait_for 20 grep -q step "$TMP/${names[i]}.log" || fail "does not start: $(cat "$TMP/${names[i]}.log")"
	done
}
steps() { grep -c '^step' "$TMP/$1.log" || true; }
right() {
	local name
	touch "$TMP/enough"
	for name in "${names[@]}"; do
		wait "$(bg_pid "$name")" || fail "$1: $name: $(grep -v '^step' "$TMP/$name.log" | tail -5); gleamd: $(tail -3 "$TMP/$BROKER.log")"
		grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$name.log" || fail "$1: $(tail -3 "$TMP/$name.log")"
	done
}

# ---- killed at any point ----
RANDOM=5
points=20
[ -z "${GLEAM_LONG:-}" ] || points=100
run 1
sessions=$(grep -c 'session .*: worker [0-9]' "$TMP/node.log")
for ((i = 0; i < points; i++)); do
	sleep "0.$((RANDOM % 2))$((RANDOM % 10))$((RANDOM % 10))"
	gleamd_kill
	[ $((i % 5)) != 4 ] || sleep "0.$((RANDOM % 8))"
	gleamd_next
	# Some are killed before everybody has come back.
	[ $((i % 3)) = 2 ] || wait_for 10 eval '[ "$(grep -c "goes on after" "$TMP/$BROKER.log")" = 2 ]' ||
		fail "kill $i: nobody goes on: $(tail -5 "$TMP/$BROKER.log"); $(grep -v '^step' "$TMP/first.log" | tail -3)"
done
right "$points kills"
same "sessions at the node" "$sessions" "$(grep -c 'session .*: worker [0-9]' "$TMP/node.log")"
say "$points kills, sessions went on $(went_on) times"
grep -q 'gleamd is back' "$TMP/first.log" || fail "the program has not noticed: $(cat "$TMP/first.log")"

# ---- restarted in good order ----
run 2
for i in 1 2 3; do
	gleamd_stop
	gleamd_next
	before=$(steps first)
	wait_for 10 eval '[ "$(steps first)" -gt $((before + 2)) ]' || fail "restart: $(grep -v '^step' "$TMP/first.log" | tail -3)"
done
right "three restarts"

# ---- killed while the program is about to come in: it comes in, unless there was nobody to ask ----
for i in 1 2 3; do
	start_bg "new-$i" env GLEAM_LOG=1 LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/checksum" 5 $i
	sleep "0.0$((RANDOM % 10))"
	gleamd_kill
	gleamd_next
	wait "$(bg_pid "new-$i")" || grep -q 'is gleamd running with this socket' "$TMP/new-$i.log" || fail "a program that begins: $(cat "$TMP/new-$i.log")"
done

# ---- none for longer than the time of grace ----
# Within a second of its end; on a machine that has better things to do it is looked at again.
for try in 1 2 3; do
	run $((2 + try))
	gleamd_kill
	start=$(date +%s%N)
	late=0
	for name in "${names[@]}"; do
		if wait "$(bg_pid "$name")"; then fail "$name goes on without gleamd"; fi
		ms=$((($(date +%s%N) - start) / 1000000))
		grep -q CUDA_ERROR_DEVICE_UNAVAILABLE "$TMP/$name.log" || fail "$name: $(grep -v '^step' "$TMP/$name.log" | tail -3)"
		grep -q 'did not come back within 4.0 s.*systemctl start gleamd' "$TMP/$name.log" || fail "$name: $(grep -v '^step' "$TMP/$name.log" | tail -3)"
		[ "$ms" -ge $((grace * 1000 - 100)) ] || fail "$name has ended after $ms ms"
		[ "$ms" -le $((grace * 1000 + 1000)) ] || late=$ms
	done
	[ $late != 0 ] || break
	gleamd_next
done
[ $late = 0 ] || fail "the end came after $late ms, three times"
say "ended $ms ms after gleamd, grace $grace s"
gleamd_next
gleamd_stop
stop_bg node || fail "the node ended with status $?: $(tail -5 "$TMP/node.log")"
# Programs that were to fail may leave things behind.
if grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/node.log "$TMP"/broker.log "$TMP"/next-*.log; then
	fail "a daemon has complained"
fi
