#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# Programs that are killed at any moment make no other one wait, and nothing of them stays: no session, no worker, no client in the
# lists (field case P-033). 6 programs for 6 s; GLEAM_LONG=1: 16 for 5 minutes.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

count=6 seconds=6
[ -z "${GLEAM_LONG:-}" ] || count=16 seconds=300
soft_up
mkdir "$TMP/runs"
# Each turn: start, allocate, compute, free, end; its time if it came to its end.
turns() {
	local from status # of a program that is killed: 137
	while [ ! -e "$TMP/enough" ]; do
		from=$(now_ns)
		status=0
		LD_LIBRARY_PATH=$OUT/lib "$OUT/tests/cuda/vecadd" 20000 3 >"$TMP/runs/$1.out" 2>&1 &
		echo $! >"$TMP/runs/$1.pid"
		wait $! 2>/dev/null || status=$?
		case $status in
		0) echo $((($(now_ns) - from) / 1000000)) >>"$TMP/runs/$1.ms" ;;
		137) ;; # killed
		*) cp "$TMP/runs/$1.out" "$TMP/runs/$1.wrong.$status" ;;
		esac
	done
}
for ((i = 0; i < count; i++)); do
	turns $i &
	pids[i]=$!
done
RANDOM=5 killed=0
end=$((SECONDS + seconds))
while [ $SECONDS -lt $end ]; do
	sleep 0.1
	victim=$(cat "$TMP/runs/$((RANDOM % count)).pid" 2>/dev/null || true)
	if [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; then
		killed=$((killed + 1))
	fi
done
touch "$TMP/enough"
wait "${pids[@]}"
wrong=$(find "$TMP/runs" -name '*.wrong.*' | head -1)
[ -z "$wrong" ] || fail "a program that nobody killed: $(cat "$wrong")"
all=$(cat "$TMP"/runs/*.ms | wc -l)
slowest=$(sort -n "$TMP"/runs/*.ms | tail -1)
say "$killed killed, $all came to their end, the slowest in $slowest ms"
[ "$killed" -ge $((seconds / 2)) ] && [ "$all" -ge "$count" ] || fail "too few: the test shows nothing"
# Alone on two busy cores each takes a second or so; a wait for somebody's death would add its own bound.
between "slowest (ms)" 1 "$slowest" 15000

clients() { "$OUT/bin/gleamctl" clients --socket "$TMP/$1.sock" --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["clients"]))'; }
wait_for 10 eval '[ "$(clients client)" = 0 ]' || fail "clients are listed: $("$OUT/bin/gleamctl" clients --socket "$TMP/client.sock")"
wait_for 10 eval '[ "$(pgrep -c -P "$(bg_pid node)" gleam-worker)" -le 1 ]' || fail "workers are left: $(pgrep -P "$(bg_pid node)" -a)"
program vecadd 1000 >/dev/null || fail "the next program"
soft_down
