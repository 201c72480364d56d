#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node takes as many clients as its configuration says; the next one is refused with the limit's name, and served when one has gone.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

printf '[node]\nsessions = 2\n' >"$TMP/conf"
node_up node --config "$TMP/conf"
broker_up broker
for i in 1 2; do
	start_bg held$i "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
	wait_for 10 test -s "$TMP/held$i.log" || fail "no session"
done
out=$(client broker try) && fail "a third client was taken"
case $out in "refused 7: "*"its limit"*) ;; *) fail "$out" ;; esac
kill -KILL "$(bg_pid held1)"
wait_for 5 client broker try || fail "nobody is taken although one has gone"
alive "$(head -1 "$TMP/held2.log")" || fail "the other client's worker has gone"
kill -KILL "$(bg_pid held2)"
daemons_down broker node
