#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node that is killed: its clients' calls fail within a second with the reason LINK_LOST; the broker goes on, says why, and
# uses the node again when it is back. A node that is only stopped (no bytes, no FIN) is noticed by keepalive.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

node_up node --grace 0
broker_up broker --keepalive 2 --grace 0
start_bg held "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/held.log" || fail "no session"
kill -KILL "$(bg_pid node)"
before=$(now_ns)
wait_for 5 grep -q '^ended: 3' "$TMP/held.log" || fail "the session did not end: $(cat "$TMP/held.log")"
ms=$((($(now_ns) - before) / 1000000))
say "session ended after $ms ms"
[ "$ms" -lt 1000 ] || fail "that took $ms ms"
wait_for 5 eval '[ "$(count_workers)" = 0 ]' || fail "a worker survived its node"

# Nobody there: an answer within three seconds that says what is wrong.
before=$(now_ns)
out=$(client broker try) && fail "a session without a node: $out"
ms=$((($(now_ns) - before) / 1000000))
[ "$ms" -lt 3000 ] || fail "the refusal took $ms ms"
case $out in "refused 5: "*Connection\ refused*) ;; *) fail "an unhelpful refusal: $out" ;; esac

# Back again, on the same port.
node_up node2
wait_for 20 client broker try || fail "the node is back and isn't used"

# Frozen: the connection stays, nothing comes.
start_bg frozen "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/frozen.log" || fail "no session"
kill -STOP "$(bg_pid node2)"
before=$(now_ns)
wait_for 10 grep -q '^ended: 3' "$TMP/frozen.log" || fail "a frozen node is not noticed"
say "frozen node noticed after $((($(now_ns) - before) / 1000000)) ms, keepalive 2 s"
kill -CONT "$(bg_pid node2)"
log_has broker "nothing heard for" || fail "the log does not say why"
daemons_down broker node2
