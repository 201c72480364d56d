#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# A session outlives its link: commands, replies, notices and bulk bytes both ways arrive once and in order however often the link is
# reset, by a link that one side still believes in, and after a time without any. After the time of grace it ends within a second,
# with the reason; what ended meanwhile at the other end is told or forgotten at once.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"
need_built tests/fault/gleam-chaos

node_up node --keepalive 2 --grace 3
chaos=$TMP/chaos.sock
start_bg chaos "$OUT/tests/fault/gleam-chaos" --listen 127.0.0.1:0 --target "127.0.0.1:$PORT" --control "$chaos" \
	--delay 2 --rate 600000000
wait_for 5 grep -q listening "$TMP/chaos.log"
trouble() { "$OUT/tests/fault/gleam-chaos" ctl "$chaos" "$@" >/dev/null; }
NODE_PORT=$PORT
PORT=$(sed -n 's/^listening //p' "$TMP/chaos.log")
broker_up broker --keepalive 1 --grace 3
lost() { grep -c 'its session waits' "$TMP/broker.log" || true; }
went_on() { grep -c 'goes on after' "$TMP/broker.log" || true; }

# ---- resets while everything flows ----
many=0 # flows so far
# disturb FLOW...: all at once, until they end by themselves
disturb() {
	local flow i=0 cuts=0 before pids=()
	before=$(went_on)
	for flow; do
		# shellcheck disable=SC2086
		start_bg "flow-$i" "$OUT/tests/fake/fake-client" "$TMP/broker.sock" $flow
		pids+=("$BG_PID")
		i=$((i + 1))
	done
	while [ $cuts -lt 40 ] && kill -0 "${pids[@]}" 2>/dev/null; do
		sleep 0.$((RANDOM % 3))$((RANDOM % 10))5
		trouble cut
		cuts=$((cuts + 1))
	done
	for ((i = 0; i < $#; i++)); do
		wait "${pids[i]}" || fail "$(cat "$TMP/flow-$i.log")"
	done
	say "$*: $cuts resets, sessions went on $(($(went_on) - before)) times"
	[ "$(went_on)" -ge $((before + 3)) ] || fail "the flows ended before there was trouble"
	# One whose program had all it wanted when the link was lost ends instead.
	ended=$(($(lost) - $(went_on)))
	between "sessions that ended without a link" 0 "$ended" $((many += $#))
}

client broker echo 20
RANDOM=7
disturb "up 60000000" "up 40000000"
log_has broker "[1-9][0-9]* pieces are sent again" || fail "no piece was on its way"
disturb "down 60000000" "down 40000000"
disturb "echo 1000" "stream 1000000" words "up 20000000" "down 20000000"
log_has broker "[1-9][0-9]* bytes of commands" || fail "no command was on its way"
trouble delay 0
trouble rate 0

# ---- cut while a client attaches: it is let in by the next link ----
# It waits for an answer that a slow network brings later than the cut.
trouble delay 400
start_bg young "$OUT/tests/fake/fake-client" "$TMP/broker.sock" echo 5
sleep 0.2
trouble cut
trouble delay 0
wait "$(bg_pid young)" || fail "a client that attached when the link was cut: $(cat "$TMP/young.log")"

# ---- and where the link was lost a moment before, and comes back a moment later ----
trouble refuse
trouble cut
wait_for 5 eval 'tail -1 "$TMP/broker.log" | grep -q "server gpu: "' || fail "$(tail -3 "$TMP/broker.log")"
start_bg soon "$OUT/tests/fake/fake-client" "$TMP/broker.sock" echo 5
sleep 0.3
trouble accept
wait "$(bg_pid soon)" || fail "a client that came when the link was lost: $(cat "$TMP/soon.log")"

# ---- nothing reaches the broker for a time; nothing reaches either ----
start_bg half "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/half.log"
for word in stall-down silent; do
	before=$(lost)
	trouble $word
	wait_for 5 eval '[ "$(lost)" -gt "$before" ]' || fail "$word: $(tail -5 "$TMP/broker.log")"
	trouble flow
	wait_for 6 eval '[ "$(lost)" = $(($(went_on) + ended)) ]' || fail "$word: $(tail -5 "$TMP/broker.log")"
	alive "$(bg_pid half)" || fail "the session is over: $(cat "$TMP/half.log")"
	client broker echo 20
done

# ---- killed while there is no link: its worker ends as soon as there is one ----
wait_for 10 eval '[ "$(count_workers)" = 2 ]' || fail "workers before: $(count_workers)"
waits() { grep -c 'waits up to .* for its broker' "$TMP/node.log" || true; }
before=$(waits)
trouble refuse
trouble cut
wait_for 5 eval '[ "$(waits)" -gt "$before" ]'
stop_bg half KILL || true
sleep 0.2
same "workers while there is no link" 2 "$(count_workers)"
trouble accept
wait_for 5 eval '[ "$(count_workers)" = 1 ]' || fail "the worker of a dead client waits: $(tail -3 "$TMP/node.log")"

# ---- killed, and the link is lost before its node has heard of it: it is told again ----
start_bg unheard "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/unheard.log"
wait_for 10 eval '[ "$(count_workers)" = 2 ]' || fail "workers before: $(count_workers)"
trouble stall-up
pid=$(bg_pid unheard)
stop_bg unheard KILL || true
wait_for 5 log_has broker "pid $pid (fake-client): gone"
trouble cut
trouble flow
wait_for 5 eval '[ "$(count_workers)" = 1 ]' || fail "the worker of a client whose end was lost waits: $(tail -3 "$TMP/node.log")"

# ---- the worker dies while there is no link: its reason comes by the next one ----
start_bg orphan "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/orphan.log"
worker=$(sed -n 's/.*: worker \([0-9]*\)$/\1/p' "$TMP/node.log" | tail -1)
before=$(waits)
trouble refuse
trouble cut
wait_for 5 eval '[ "$(waits)" -gt "$before" ]'
kill -KILL "$worker"
trouble accept
wait_for 5 grep -q '^ended: 2' "$TMP/orphan.log" || fail "a worker that died: $(cat "$TMP/orphan.log")"

# ---- longer than the time of grace ----
start_bg late "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/late.log"
trouble refuse
trouble cut
start=$(now_ns)
wait_for 8 grep -q '^ended: 3' "$TMP/late.log" || fail "the session outlived the time of grace"
ms=$((($(now_ns) - start) / 1000000))
say "ended after $ms ms, grace 3 s"
between "the end (ms)" 2900 "$ms" 4000
log_has broker "is lost: .*it did not come back within 3.0 s" || fail "the log does not say why: $(tail -3 "$TMP/broker.log")"
wait_for 10 eval '[ "$(count_workers)" = 1 ]' || fail "the node's worker waits for ever"
log_has node "its broker did not come back" || fail "the node's log does not say why"
trouble accept
wait_for 20 client broker echo 20

# ---- a node that was restarted has no such session ----
start_bg forgotten "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/forgotten.log"
stop_bg node KILL || true
PORT=$NODE_PORT
node_up node2
wait_for 5 grep -q '^ended: 3' "$TMP/forgotten.log" || fail "a restarted node: $(cat "$TMP/forgotten.log")"
log_has broker "doesn't have the session any more" || fail "the log does not say why: $(tail -3 "$TMP/broker.log")"
client broker echo 20
daemons_down broker node2 chaos
