#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 200
# gleamd is killed while programs load weights that the node has, so that their bytes never left the file: the right bytes lie on the device all
# the same. It is killed while programs move: they go on where they are, also if they were held at that moment.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/checksum tests/cuda/weights tests/cuda/apart tests/fault/gleam-chaos

# A way on which a load takes a while.
PORT=$(free_port) B_PORT=$(free_port)
chaos=$TMP/chaos.sock
start_bg chaos "$OUT/tests/fault/gleam-chaos" --listen 127.0.0.1:0 --target "127.0.0.1:$PORT" --control "$chaos" --delay 3
wait_for 5 grep -q listening "$TMP/chaos.log"
PROXY=$(sed -n 's/^listening //p' "$TMP/chaos.log")
printf '[cache]\nmemory = 256M\ndir = no\nuse = on\n' >"$TMP/cache.conf"
path_up --config "$TMP/cache.conf" -- --config "$TMP/cache.conf" --server "lab=127.0.0.1:$PROXY" --server "b=127.0.0.1:$B_PORT"
start_bg b "$OUT/bin/gleamd" --no-fuse --socket "$TMP/b.sock" --listen "127.0.0.1:$B_PORT" --driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" --log debug
wait_for 15 grep -q 'is warm' "$TMP/b.log" || fail "no warm worker: $(tail -5 "$TMP/b.log")"
ctl() { "$OUT/bin/gleamctl" "$@" --socket "$TMP/gleamd.sock"; }
turn=0 BROKER=broker
gleamd_next() {
	turn=$((turn + 1))
	start_bg "next-$turn" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" --config "$TMP/cache.conf" --server "gpu=127.0.0.1:$PORT" \
		--server "lab=127.0.0.1:$PROXY" --server "b=127.0.0.1:$B_PORT" --key "$TMP/key" --log debug
	BROKER=next-$turn
	wait_for 15 grep -q 'is ready' "$TMP/$BROKER.log" || fail "the next gleamd: $(tail -5 "$TMP/$BROKER.log")"
}
gleamd_kill() { stop_bg "$BROKER" KILL || true; }
RANDOM=9

# ---- loads ----
head -c 48000000 /dev/urandom >"$TMP/model"
sleep 2.1 # what is younger than two seconds is told by its bytes alone
load() { GLEAM_SERVER=lab GLEAM_LOG=1 cuda weights "$TMP/model" "$1"; }
for mode in mapped mapped heap; do
	load $mode >"$TMP/load.log" 2>&1 || fail "$mode: $(cat "$TMP/load.log")"
done
interrupted=0
for ((i = 0; i < 8; i++)); do
	mode=mapped
	[ $((i % 4)) != 3 ] || mode=heap
	start_bg "load-$i" env GLEAM_SERVER=lab GLEAM_LOG=1 LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/weights" "$TMP/model" $mode
	wait_for 20 grep -q "pid $BG_PID .*: session [0-9]* on lab" "$TMP/$BROKER.log" || fail "no session: $(cat "$TMP/load-$i.log")"
	sleep "0.$((RANDOM % 2))$((RANDOM % 10))"
	gleamd_kill
	gleamd_next
	wait "$(bg_pid "load-$i")" || fail "load $i ($mode): $(cat "$TMP/load-$i.log"); $(tail -3 "$TMP/$BROKER.log")"
	! grep -q 'gleamd is back' "$TMP/load-$i.log" || interrupted=$((interrupted + 1))
	# The next one finds a cache again.
	ctl servers >/dev/null
done
say "8 loads, $interrupted interrupted"
[ "$interrupted" -ge 3 ] || fail "the loads were over before there was trouble"

# ---- a program with GPUs of two servers: both sessions go on ----
before=$(cat "$TMP"/next-*.log | grep -c 'goes on after' || true)
for ((i = 0; i < 2; i++)); do
	start_bg "apart-$i" env GLEAM_SERVER=gpu,b GLEAM_LOG=1 LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/apart"
	for server in gpu b; do
		wait_for 20 grep -q "pid $BG_PID .*: session [0-9]* on $server" "$TMP/$BROKER.log" || fail "no session: $(cat "$TMP/apart-$i.log")"
	done
	sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
	gleamd_kill
	gleamd_next
	wait "$(bg_pid "apart-$i")" || fail "apart $i: $(tail -5 "$TMP/apart-$i.log"); $(tail -3 "$TMP/$BROKER.log")"
done
went=$(($(cat "$TMP"/next-*.log | grep -c 'goes on after' || true) - before))
say "2 programs with GPUs of two servers, $went sessions went on"
[ "$went" -ge 2 ] || fail "the programs were over before there was trouble"

# ---- moves ----
start() {
	rm -f "$TMP/enough"
	start_bg program env GLEAM_SERVER=gpu GLEAM_LOG=1 LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/checksum" 50 "$1" 0 "$TMP/enough"
	wait_for 30 grep -q step "$TMP/program.log" || fail "does not start: $(cat "$TMP/program.log")"
}
steps() { grep -c '^step' "$TMP/program.log" || true; }
start 1
went=0 to=b
for ((i = 0; i < 6; i++)); do
	pid=$(bg_pid program)
	start_bg mover "$OUT/bin/gleamctl" migrate "$pid" $to --socket "$TMP/gleamd.sock"
	sleep "0.$((RANDOM % 2))$((RANDOM % 10))$((RANDOM % 10))"
	gleamd_kill
	wait "$(bg_pid mover)" || true
	gleamd_next
	before=$(steps)
	wait_for 20 eval '[ "$(steps)" -gt $((before + 2)) ] || ! alive $pid' || fail "kill $i: it stands still: $(grep -v '^step' "$TMP/program.log" | tail -3); $(tail -4 "$TMP/$BROKER.log")"
	if alive "$pid" && [ "$(steps)" -gt $((before + 2)) ]; then
		went=$((went + 1))
		[ $to = b ] && to=gpu || to=b
	else
		fail "kill $i: $(grep -v '^step' "$TMP/program.log" | tail -5); $(tail -4 "$TMP/$BROKER.log")"
	fi
done
touch "$TMP/enough"
wait "$(bg_pid program)" || fail "$(grep -v '^step' "$TMP/program.log" | tail -5)"
grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/program.log" || fail "$(tail -3 "$TMP/program.log")"
say "killed in 6 moves: it went on $went times, $(cat "$TMP"/next-*.log "$TMP/broker.log" | grep -c 'move: .* held, ' || true) came to their end"
for name in "$BROKER" node b; do
	stop_bg "$name" || fail "$name ended with status $?: $(tail -5 "$TMP/$name.log")"
done
if grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log; then
	fail "a daemon has complained"
fi
