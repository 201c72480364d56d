#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A client that is killed takes its worker with it, at once; another client does not notice.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

node_up node
broker_up broker
start_bg other "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
start_bg victim "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/victim.log" || fail "no session"
wait_for 10 test -s "$TMP/other.log" || fail "no session"
worker=$(head -1 "$TMP/victim.log")
alive "$worker" || fail "the worker's pid $worker is not a process"
kill -KILL "$(bg_pid victim)"
before=$(now_ns)
wait_for 5 eval "! kill -0 $worker" || fail "the worker of a dead client lives on"
say "worker gone after $((($(now_ns) - before) / 1000000)) ms"
alive "$(head -1 "$TMP/other.log")" || fail "the other client's worker is gone, too"
client broker echo 20
kill -KILL "$(bg_pid other)"
daemons_down broker node
same workers 0 "$(count_workers)"
