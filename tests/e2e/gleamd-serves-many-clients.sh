#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Eight clients at once share one link: all get their own bytes back, and small calls go on beside bulk.
# time-limit: 180
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

key_make "$TMP/key"
node_up node --key "$TMP/key" --warm 4
broker_up broker --key "$TMP/key"
pids=()
for i in 1 2; do
	client broker up 60000000 >"$TMP/up$i" & pids+=($!)
	client broker down 40000000 >"$TMP/down$i" & pids+=($!)
	client broker echo 400 & pids+=($!)
	client broker stream 20000 >"$TMP/stream$i" & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "a client failed"; done
same links 1 "$(grep -c 'server gpu: link to' "$TMP/broker.log")"
wait_for 5 eval '[ "$(grep -c "ended: the client is gone" "$TMP/node.log")" = 8 ]' || fail "not every session ended"
daemons_down broker node
same workers 0 "$(count_workers)"
