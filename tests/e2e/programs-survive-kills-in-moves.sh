#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 400
# Whoever is killed in whatever step of a move, the program goes on with right numbers, or gets a clean CUDA error: never a wrong number, never
# no end. While the target alone has died it goes on. Links are slow here, so that there is time in each step. GLEAM_LONG=1: each of the six
# parties in each of the five steps, twice.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/train tests/fault/gleam-chaos

export GLEAM_SOFTGPU_MEMORY=128M GLEAM_SOCKET=$TMP/gleamd.sock
ctl() { "$OUT/bin/gleamctl" "$@"; }
ctl key new "$TMP/key" >/dev/null
for node in a b; do
	eval "PORT_$node=$(free_port)"
	eval "port=\$PORT_$node"
	start_bg "chaos-$node" "$OUT/tests/fault/gleam-chaos" --listen 127.0.0.1:0 --target "127.0.0.1:$port" --delay 10 --rate 60mbit
	wait_for 5 grep -q listening "$TMP/chaos-$node.log"
done
proxy() { sed -n 's/^listening //p' "$TMP/chaos-$1.log"; }
node_up() { # NAME
	eval "port=\$PORT_$1"
	start_bg "$1" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$1.sock" --listen "127.0.0.1:$port" \
		--driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" --log debug
	wait_for 20 grep -q 'is warm' "$TMP/$1.log" || fail "no warm worker: $(tail -5 "$TMP/$1.log")"
}
cat >"$TMP/broker.conf" <<END
[key]
file = $TMP/key
[link]
grace = 2
compress = off
[servers]
a = 127.0.0.1:$(proxy a)
b = 127.0.0.1:$(proxy b)
END
broker_up() {
	start_bg broker "$OUT/bin/gleamd" --no-fuse --config "$TMP/broker.conf" --socket "$GLEAM_SOCKET" --log debug
	wait_for 10 grep -q 'is ready' "$TMP/broker.log" || fail "the client's daemon: $(tail -5 "$TMP/broker.log")"
	wait_for 20 reached || fail "servers: $(ctl servers)"
}
reached() { ctl servers --json | python3 -c 'import json, sys
sys.exit(not all(s["state"] == "ready" for s in json.load(sys.stdin)["servers"]))'; }
alive_bg() { alive "$(bg_pid "$1")"; }
worker_of() { # NODE: of the program, or the one that waits for somebody
	{
		sed -n 's/.* worker \([0-9]*\) is warm/\1/p' "$TMP/$1.log"
		sed -n "s/.*pid $pid): worker \([0-9]*\)$/\1/p" "$TMP/$1.log"
	} | tail -1
}
node_up a
node_up b
broker_up
GLEAM_SERVER=a cuda train 150 - 4 1 >"$TMP/still.out" || fail "$(tail -3 "$TMP/still.out")"

# kills PARTY STEP
kills() {
	local party=$1 step=$2 status=0 what=ended victim n
	rm -f "$TMP/enough"
	wait_for 20 reached || fail "servers: $(ctl servers)"
	start_bg train env GLEAM_SERVER=a LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/train" 1 "$TMP/enough" 4 1 5
	pid=$(bg_pid train)
	wait_for 30 grep -q '^loss 2 ' "$TMP/train.log" || fail "it does not start: $(cat "$TMP/train.log")"
	start_bg migrate "$OUT/bin/gleamctl" migrate "$pid" b
	case $step in
	reach) wait_for 20 grep -q "pid $pid .*is moved from a to b" "$TMP/broker.log" ;;
	# With contents on their way between the nodes.
	copy) wait_for 30 grep -qE "move: pid $pid: contents go from a to b|move: a to b: not done" "$TMP/broker.log" ;;
	*) wait_for 30 grep -qE "move: pid $pid: $step|move: a to b: not done" "$TMP/broker.log" ;;
	esac || fail "$party, $step: $(grep move: "$TMP/broker.log" | tail -3)"
	case $party in
	program) victim=$pid ;;
	gleamd) victim=$(bg_pid broker) ;;
	source-node) victim=$(bg_pid a) ;;
	target-node) victim=$(bg_pid b) ;;
	source-worker) victim=$(worker_of a) ;;
	target-worker) victim=$(worker_of b) ;;
	esac
	kill -KILL "$victim" 2>/dev/null || true
	# Whatever it comes to, it comes to an end.
	wait_for 40 eval '! alive_bg migrate' || fail "$party, $step: the move has no end: $(grep move: "$TMP/broker.log" | tail -3)"
	n=$(grep -c '^loss' "$TMP/train.log")
	wait_for 40 eval '! alive_bg train || [ $(grep -c "^loss" "$TMP/train.log") -gt $((n + 3)) ]' ||
		fail "$party, $step: neither an end nor a step: $(tail -2 "$TMP/train.log" "$TMP/broker.log")"
	touch "$TMP/enough"
	wait_for 40 eval '! alive_bg train' || fail "$party, $step: the program has no end"
	wait "$pid" 2>/dev/null || status=$?
	! grep -q 'wrong:' "$TMP/train.log" || fail "$party, $step: $(grep 'wrong:' "$TMP/train.log")"
	head -n 150 <(grep '^loss' "$TMP/train.log") >"$TMP/got" 2>/dev/null || true
	# Its last line may be half written.
	if [ $status != 0 ]; then sed -i '$d' "$TMP/got"; fi
	head -n "$(wc -l <"$TMP/got")" <(grep '^loss' "$TMP/still.out") 2>/dev/null | cmp -s - "$TMP/got" || fail "$party, $step: wrong losses"
	if [ $status = 0 ]; then
		grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/train.log" || fail "$party, $step: $(tail -2 "$TMP/train.log")"
		what="went on"
	elif [ "$party" != program ]; then
		grep -q ': CUDA_ERROR_[A-Z_]* (' "$TMP/train.log" || fail "$party, $step: no clean error: status $status, $(tail -2 "$TMP/train.log")"
		what=$(grep -o 'CUDA_ERROR_[A-Z_]*' "$TMP/train.log" | head -1)
	fi
	# Whoever asked for the move hears that, and not what its servers make of it.
	[ "$party" != program ] || grep -qE "pid $pid has ended meanwhile|^moved from a to b" "$TMP/migrate.log" ||
		fail "$party, $step: $(cat "$TMP/migrate.log")"
	case $party:$step in
	target-*:switch) ;;
	target-*) [ $status = 0 ] || fail "$party, $step: the source was alive, and it got $what" ;;
	esac
	say "$party killed in $step: the program $what"
	# Who is dead comes back, and who lives holds nothing of it any more.
	for name in a b broker; do
		alive_bg $name && continue
		wait "$(bg_pid $name)" 2>/dev/null || true
		if [ $name = broker ]; then broker_up; else node_up $name; fi
	done
	gone() { [ -z "$(pgrep -s 0 -x train)" ] && ! ctl clients --json | grep -q '"pid": '"$pid"; }
	wait_for 20 gone || fail "$party, $step: it is still known: $(ctl clients)"
}

cases="program:copy gleamd:last source-node:copy target-node:last source-worker:last target-worker:copy"
if [ -n "${GLEAM_LONG:-}" ]; then
	cases=
	for turn in 1 2; do
		for party in program gleamd source-node target-node source-worker target-worker; do
			for step in reach check copy last switch; do cases="$cases $party:$step"; done
		done
	done
fi
for case in $cases; do
	kills "${case%:*}" "${case#*:}"
done
bad=$(grep -lE 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || true)
[ -z "$bad" ] || fail "somebody has complained: $(grep -hE -A20 'Sanitizer|runtime error:|Assertion' $bad | head -40)"
for name in broker a b; do
	stop_bg $name || fail "$name ended with status $?: $(tail -3 "$TMP/$name.log")"
done
