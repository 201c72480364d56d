#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 300
# A program that shares its memory with a worker of its own machine moves: to a server, to another worker of this machine, and back from the
# server, under load, with the same results bit for bit as one that stays. What fails leaves it where it was, by the short cut; whoever
# is killed in the middle leaves a running program or a clean error. GLEAM_LONG=1: forty of them.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/checksum tests/cuda/secret tests/cuda/train

export GLEAM_SOFTGPU_MEMORY=512M
PORT=$(free_port) B_PORT=$(free_port) SMALL_PORT=$(free_port) NONE_PORT=$(free_port)
node_up() { # NAME PORT [ENV...]
	local name=$1 port=$2
	shift 2
	start_bg "$name" env "$@" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$name.sock" --listen "127.0.0.1:$port" \
		--driver "$OUT/lib/libsoftcuda.so" --log debug
	wait_for 15 grep -q 'is warm' "$TMP/$name.log" || fail "no warm worker: $(tail -5 "$TMP/$name.log")"
}
here_up() {
	start_bg here env GLEAM_SOFTGPU_DEVICES=2 "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" --listen "127.0.0.1:$PORT" \
		--driver "$OUT/lib/libsoftcuda.so" --server "here=127.0.0.1:$PORT" --server "b=127.0.0.1:$B_PORT" \
		--server "small=127.0.0.1:$SMALL_PORT" --server "none=127.0.0.1:$NONE_PORT" --log debug "$@"
	wait_for 15 grep -q 'is warm' "$TMP/here.log" || fail "no warm worker: $(tail -5 "$TMP/here.log")"
}
node_up b "$B_PORT"
node_up small "$SMALL_PORT" GLEAM_SOFTGPU_MEMORY=64M
here_up
export GLEAM_SOCKET=$TMP/gleamd.sock
ctl() { "$OUT/bin/gleamctl" "$@" --socket "$TMP/gleamd.sock"; }
move() { ctl migrate "$@"; }
# start NAME STEPS SEED [MS]: until $TMP/enough
start() {
	start_bg "$1" env GLEAM_SERVER=here LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/checksum" "$2" "$3" "${4:-0}" "$TMP/enough"
	wait_for 30 grep -q step "$TMP/$1.log" || fail "$1 does not start: $(cat "$TMP/$1.log")"
}
right() { # NAME
	wait "$(bg_pid "$1")" || fail "$1: $(grep -v '^step' "$TMP/$1.log" | tail -5; grep -h move: "$TMP"/*.log | tail -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$1.log" || fail "$1: $(tail -3 "$TMP/$1.log")"
}
# PID FIELD
of() { ctl clients --json | python3 -c 'import json, sys
print([c[sys.argv[2]] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])][0])' "$@"; }

# ---- the same numbers, moved or not ----
GLEAM_SERVER=here cuda checksum 900 5 >"$TMP/still.out" || fail "$(tail -3 "$TMP/still.out")"
touch "$TMP/enough"
# With pauses: it must not have ended before it is told to move.
start moved 900 5 5
pid=$(bg_pid moved)
same "by the short cut" True "$(of "$pid" direct)"
moves=0
for to in b here here b; do
	alive "$pid" || break
	if move "$pid" $to >"$TMP/move.out" 2>&1; then
		moves=$((moves + 1))
	else
		grep -qE "did not come to an end|no program of yours|has ended" "$TMP/move.out" || fail "to $to: $(cat "$TMP/move.out")"
	fi
done
right moved
[ $moves -ge 1 ] || fail "it was not moved: $(cat "$TMP/move.out")"
say "moved $moves times: $(cat "$TMP/move.out")"
same "checksum of the moved program" "$(grep checksum "$TMP/still.out")" "$(grep checksum "$TMP/moved.log")"
rm "$TMP/enough"

# ---- what fails leaves it where it was, by the short cut, and it goes on ----
start first 10 1
pid=$(bg_pid first)
refused() { # WHY ARGUMENT...
	local why=$1
	shift
	same "status of gleamctl $*" 1 "$(status_of ctl "$@")"
	grep -q -- "$why" "$TMP/status.out" || fail "$*: $(cat "$TMP/status.out")"
	same "by the short cut" True "$(of "$pid" direct)"
}
refused "can't be reached" migrate "$pid" none
goes_on() { # NAME
	local before
	before=$(grep -c step "$TMP/$1.log")
	wait_for 20 eval "[ \$(grep -c step '$TMP/$1.log') -gt $before ]" || fail "$1 does not go on"
}
goes_on first
start_bg secret env GLEAM_SERVER=here LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/secret" write
wait_for 20 grep -q written "$TMP/secret.log"
first=$pid pid=$(bg_pid secret)
refused "small: its GPU has too little free memory" migrate "$pid" small
pid=$first
stop_bg secret KILL || true

# ---- a checkpoint: it gives up the short cut for another worker of this machine; that is killed, and it goes on in the middle of its work ----
GLEAM_SERVER=here cuda train 200 - 8 1 >"$TMP/still-train.out" || fail "$(tail -3 "$TMP/still-train.out")"
start_bg train env GLEAM_SERVER=here LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/train" 200 "$TMP/trained" 8 1
wait_for 30 grep -q '^loss 9 ' "$TMP/train.log" || fail "it does not start: $(cat "$TMP/train.log")"
trained=$(bg_pid train)
same "by the short cut" True "$(of "$trained" direct)"
for try in 1 2 3 4 5; do
	ctl checkpoint "$trained" "$TMP/saved" >"$TMP/save.out" 2>&1 && break
	grep -q "did not come to an end" "$TMP/save.out" || fail "a checkpoint: $(cat "$TMP/save.out")"
done
say "$(cat "$TMP/save.out")"
grep -q "^moved $trained to another worker of here" "$TMP/save.out" || fail "a checkpoint: $(cat "$TMP/save.out")"
same "by the short cut, after a checkpoint" False "$(of "$trained" direct)"
losses=$(grep -c ^loss "$TMP/train.log")
wait_for 20 eval '[ $(grep -c ^loss "$TMP/train.log") -gt '"$((losses + 5))"' ]' || fail "it does not go on: $(tail -3 "$TMP/train.log")"
kill -KILL "$(sed -n "s/.*pid $trained): worker \([0-9]*\)$/\1/p" "$TMP/here.log" | tail -1)"
wait_for 20 eval '[ "$(of "$trained" state)" = held ]' || fail "it is $(of "$trained" state): $(tail -3 "$TMP/here.log")"
ctl restore "$trained" "$TMP/saved" b >"$TMP/restore.out" 2>&1 || fail "$(cat "$TMP/restore.out")"
say "$(cat "$TMP/restore.out")"
touch "$TMP/trained"
right train
same "losses" "$(grep '^loss' "$TMP/still-train.out")" "$(grep -m 200 '^loss' "$TMP/train.log")"
# One that has begun without it isn't moved.
start_bg apart env GLEAM_OFF=direct GLEAM_SERVER=here LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/train" 20 "$TMP/trained-apart" 8 1
wait_for 30 grep -q '^loss 9 ' "$TMP/apart.log" || fail "it does not start: $(cat "$TMP/apart.log")"
same "by the short cut, with GLEAM_OFF=direct" False "$(of "$(bg_pid apart)" direct)"
for try in 1 2 3 4 5; do
	ctl checkpoint "$(bg_pid apart)" "$TMP/saved" >"$TMP/save.out" 2>&1 && break
	grep -q "did not come to an end" "$TMP/save.out" || fail "a checkpoint: $(cat "$TMP/save.out")"
done
grep -q "^checkpoint of" "$TMP/save.out" && ! grep -q "^moved" "$TMP/save.out" || fail "a checkpoint: $(cat "$TMP/save.out")"
touch "$TMP/trained-apart"
right apart

# ---- straight to another worker of this machine, again and again ----
turns=4
[ -z "${GLEAM_LONG:-}" ] || turns=40
came=0
for ((i = 0; i < turns; i++)); do
	name=n$i
	start $name 10 $((i + 10))
	same "by the short cut" True "$(of "$(bg_pid $name)" direct)"
	to=$([ $((i % 2)) = 0 ] && echo here || echo b)
	if move "$(bg_pid $name)" $to >"$TMP/move.out" 2>&1; then
		came=$((came + 1))
		same "server of $name" $to "$(of "$(bg_pid $name)" server)"
		same "by the short cut" False "$(of "$(bg_pid $name)" direct)"
	else
		grep -q "did not come to an end" "$TMP/move.out" || fail "move $i: $(cat "$TMP/move.out")"
	fi
	goes_on $name
	[ $((i % 4)) = 3 ] || continue
	touch "$TMP/enough"
	for ((k = i - 3; k <= i; k++)); do
		right n$k
	done
	[ $i = 3 ] && right first
	rm "$TMP/enough"
done
say "$came of $turns came: $(cat "$TMP/move.out")"
[ $came -ge $((turns / 2)) ] || fail "too few moves"

# ---- while copies of pages that both have mapped are on their way: another worker has to get their bytes ----
for to in here b; do
	start_bg pages env GLEAM_SERVER=here LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/pages" "$TMP/enough"
	wait_for 30 grep -q round "$TMP/pages.log" || fail "pages: $(cat "$TMP/pages.log")"
	pid=$(bg_pid pages)
	same "by the short cut" True "$(of "$pid" direct)"
	for try in 1 2 3 4 5; do
		move "$pid" $to >"$TMP/move.out" 2>&1 && break
		grep -q "did not come to an end" "$TMP/move.out" || fail "pages to $to: $(cat "$TMP/move.out")"
		grep -q memfd:gleam-pages "/proc/$pid/maps" || fail "it has no pages any more"
	done
	same "by the short cut" False "$(of "$pid" direct)"
	before=$(grep -c round "$TMP/pages.log")
	wait_for 20 eval "[ \$(grep -c round '$TMP/pages.log') -gt $((before + 3)) ]" || fail "pages does not go on"
	touch "$TMP/enough"
	right pages
	rm "$TMP/enough"
done

# ---- they leave a machine that is drained ----
start one 10 3
start two 10 4
for try in 1 2 3 4 5; do
	ctl drain here >"$TMP/drain.out" 2>&1 && break
	grep -q "did not come to an end" "$TMP/drain.out" || fail "drain: $(cat "$TMP/drain.out")"
done
for name in one two; do
	[ "$(of "$(bg_pid $name)" server)" != here ] || fail "$name is on the drained machine: $(cat "$TMP/drain.out")"
	goes_on $name
done
ctl drain here --undo >/dev/null
touch "$TMP/enough"
right one
right two
rm "$TMP/enough"

# ---- whoever is killed in the middle, the program goes on or ends clean ----
for who in worker target worker target; do
	start victim 10 7
	pid=$(bg_pid victim)
	start_bg mover "$OUT/bin/gleamctl" migrate "$pid" b --socket "$TMP/gleamd.sock"
	log=$([ $who = worker ] && echo here || echo b)
	worker_of() { sed -n "s/.*pid $pid): worker \([0-9]*\)$/\1/p" "$TMP/$log.log" | tail -1; }
	wait_for 10 eval '[ -n "$(worker_of)" ]' || fail "no worker"
	kill -KILL "$(worker_of)" 2>/dev/null || true
	wait "$(bg_pid mover)" || true
	touch "$TMP/enough"
	wait "$pid" || grep -qE 'CUDA_ERROR_DEVICE_UNAVAILABLE|^[1-9][0-9]* passed, 0 failed' "$TMP/victim.log" ||
		fail "$who: $(tail -3 "$TMP/victim.log")"
	[ $who = worker ] || grep -qE '^[1-9][0-9]* passed, 0 failed|DEVICE_UNAVAILABLE' "$TMP/victim.log" || fail "$who: $(tail -3 "$TMP/victim.log")"
	rm "$TMP/enough"
done

# ---- the daemon of both: before the switch its worker ends with it, and the program clean; behind it the next one takes over ----
for wait in 0 0.02 0.05 0.1; do
	start victim 10 7
	start_bg mover "$OUT/bin/gleamctl" migrate "$(bg_pid victim)" b --socket "$TMP/gleamd.sock"
	wait_for 10 grep -q "pid $(bg_pid victim) .*: is moved from" "$TMP/here.log" || fail "no move: $(cat "$TMP/mover.log")"
	sleep $wait
	kill -KILL "$(bg_pid here)"
	stop_bg here || true
	wait "$(bg_pid mover)" || true
	here_up
	touch "$TMP/enough"
	wait "$(bg_pid victim)" || grep -qE 'CUDA_ERROR_DEVICE_UNAVAILABLE' "$TMP/victim.log" || fail "gleamd killed: $(tail -3 "$TMP/victim.log")"
	rm "$TMP/enough"
done

# ---- after a move the machine that it came from isn't needed: its gleamd is killed, and the next one takes it over ----
start last 10 9
pid=$(bg_pid last)
for try in 1 2 3; do
	[ "$(of "$pid" server)" = b ] || move "$pid" b >"$TMP/move.out" 2>&1 || true
done
same "server" b "$(of "$pid" server)"
kill -KILL "$(bg_pid here)"
stop_bg here || true
here_up
goes_on last
touch "$TMP/enough"
right last
stop_bg here || fail "gleamd ended with status $?: $(tail -5 "$TMP/here.log")"
stop_bg b || fail "b: $(tail -5 "$TMP/b.log")"
! grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || fail "a daemon has complained"
