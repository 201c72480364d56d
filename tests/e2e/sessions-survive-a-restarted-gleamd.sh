#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# A session outlives its gleamd: commands, replies, notices (also those that wait for room) and bulk bytes both ways arrive once and in order
# however often gleamd is killed. What a program forges of what the old gleamd has left costs its own session and nobody else's.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"
need_built tests/fault/gleam-chaos

node_up node --keepalive 1 --grace 4
# On the way something is under way, always.
chaos=$TMP/chaos.sock
start_bg chaos "$OUT/tests/fault/gleam-chaos" --listen 127.0.0.1:0 --target "127.0.0.1:$PORT" --control "$chaos" \
	--delay 2 --rate 300000000
wait_for 5 grep -q listening "$TMP/chaos.log"
PORT=$(sed -n 's/^listening //p' "$TMP/chaos.log")
turn=0
next() {
	turn=$((turn + 1))
	start_bg "broker-$turn" "$OUT/bin/gleamd" --socket "$TMP/broker.sock" --server "gpu=127.0.0.1:$PORT" --no-fuse --log debug --grace 5 "$@"
	wait_for 10 log_has "broker-$turn" "is ready" || fail "gleamd does not start: $(cat "$TMP/broker-$turn.log")"
}
killed() { stop_bg "broker-$turn" KILL || true; }
went_on() { cat "$TMP"/broker-*.log | grep -c 'goes on after' || true; }
export FAKE_RETURNS=1
next

# ---- killed while everything flows ----
disturb() {
	local flow i=0 kills=0 before pids=()
	before=$(went_on)
	for flow; do
		# shellcheck disable=SC2086
		start_bg "flow-$i" "$OUT/tests/fake/fake-client" "$TMP/broker.sock" $flow
		pids+=("$BG_PID")
		wait_for 10 log_has "broker-$turn" "pid $BG_PID .*: session [0-9]* on gpu" || fail "$flow: $(cat "$TMP/flow-$i.log")"
		i=$((i + 1))
	done
	while [ $kills -lt 12 ] && kill -0 "${pids[@]}" 2>/dev/null; do
		sleep 0.$((RANDOM % 2))$((RANDOM % 10))5
		killed
		next
		kills=$((kills + 1))
	done
	for ((i = 0; i < $#; i++)); do
		wait "${pids[i]}" || fail "$(cat "$TMP/flow-$i.log"); $(tail -3 "$TMP/broker-$turn.log")"
	done
	say "$*: $kills kills, sessions went on $(($(went_on) - before)) times"
	[ "$(went_on)" -ge $((before + 2)) ] || fail "the flows ended before there was trouble"
}
RANDOM=3
client broker echo 20
disturb "up 20000000" "down 20000000" "flood 40000000"
disturb "echo 500" "stream 300000" words "up 10000000" "down 10000000"
grep -q "[1-9][0-9]* bytes of commands" "$TMP"/broker-*.log || fail "no command was on its way"
grep -q "[1-9][0-9]* pieces are sent again" "$TMP"/broker-*.log || fail "no piece was on its way"
# More notices than there is room for.
disturb "print 30000" "print 30000" "print 30000"

# ---- what was left is forged ----
# forged NUMBER ANSWER [FILE]
forged() {
	start_bg "forge-$1" timeout "$(slow 30)" "$OUT/tests/fake/fake-client" "$TMP/broker.sock" forge "$1" ${3:+"$3"}
	FORGED+=("$1:$2")
}
start_bg honest "$OUT/tests/fake/fake-client" "$TMP/broker.sock" echo 1000
wait_for 10 log_has "broker-$turn" "pid $BG_PID .*: session [0-9]* on gpu" || fail "no session: $(cat "$TMP/honest.log")"
FORGED=()
forged 0 "goes on" "$TMP/token"
wait_for 10 grep -q ready "$TMP/forge-0.log"
forged 1 "ended: 3"
forged 2 "refused 4: .*nonsense"
forged 3 "ended: 4"
forged 4 "ended: 7" "$TMP/token"
forged 5 "refused 4: .*not a session's"
forged 6 "refused 4: .*not a session's"
forged 7 "refused 4: .*not a session's"
forged 8 "refused 4: .*not a session's"
forged 9 "refused 8: .*another version"
forged 10 closed
forged 11 "refused 4: .*nonsense"
forged 12 "refused 4: .*nonsense"
forged 13 "refused 5: .*no server nowhere"
forged 14 "ended: 4"
forged 15 "ended: 4"
forged 16 "refused 4: .*nonsense"
forged 17 "ended: 4"
forged 18 "refused 4: .*nonsense"
forged 19 "second: refused 4"
for f in "${FORGED[@]}"; do
	wait_for 20 grep -q ready "$TMP/forge-${f%%:*}.log" || fail "forge ${f%%:*}: $(cat "$TMP/forge-${f%%:*}.log")"
done
killed
next
for f in "${FORGED[@]}"; do
	n=${f%%:*}
	wait_for 20 grep -q "${f#*:}" "$TMP/forge-$n.log" || fail "forge $n, expected ${f#*:}: $(cat "$TMP/forge-$n.log"); $(grep -v debug "$TMP/broker-$turn.log" | tail -30)"
done
wait "$(bg_pid honest)" || fail "an honest program: $(cat "$TMP/honest.log")"
# Those that gleamd refused by itself are left to the node's time of grace.
wait_for 20 eval '[ "$(count_workers)" = 1 ]' || fail "workers of forgers wait: $(count_workers): $(grep -v debug "$TMP/node.log" | tail -60)"
client broker echo 20
# The first gleamd of all that another one must not disturb: nothing lives from it.
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
before=$(ticks "$(bg_pid "broker-$turn")")
sleep 1
between "ticks of an idle gleamd in a second" 0 $(($(ticks "$(bg_pid "broker-$turn")") - before)) 10

# ---- grace = 0: as before ----
killed
next --grace 0
start_bg short timeout "$(slow 30)" "$OUT/tests/fake/fake-client" "$TMP/broker.sock" forge 0
wait_for 10 grep -q ready "$TMP/short.log"
killed
next --grace 0
wait_for 10 grep -q "refused 3: .*grace = 0" "$TMP/short.log" || fail "grace 0: $(cat "$TMP/short.log")"

# ---- an interrupt ends sessions, at once ----
killed
next
start_bg last timeout "$(slow 30)" "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/last.log"
stop_bg "broker-$turn" INT || fail "gleamd ended with status $?"
grep -q '^ended: 9' "$TMP/last.log" || wait_for 5 grep -q '^ended: 9' "$TMP/last.log" || fail "SIGINT: $(cat "$TMP/last.log"; tail -5 "$TMP/broker-$turn.log")"
# The node has been told: it doesn't wait for whoever won't come back.
last=$(grep -oE 'session [0-9]+ of [^:]*' "$TMP/node.log" | tail -1)
wait_for 20 grep -qF "$last: ended: " "$TMP/node.log" || fail "the node still has $last"
grep -qF "$last: ended: the client is gone" "$TMP/node.log" || fail "SIGINT: $(grep -F "$last: ended: " "$TMP/node.log")"
daemons_down node chaos
