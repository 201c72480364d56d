#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Workers that don't get ready, die, or break the protocol end their own session with a reason; the daemons and other clients go on.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

# A driver that can't be loaded: NO_DEVICE, and the worker's own words reach the client.
: >"$TMP/fail-driver"
DRIVER=$TMP/fail-driver node_up bad
broker_up lost
out=$(client lost try) && fail "served without a driver"
case $out in "refused 6: "*"can't be loaded, as planned"*) ;; *) fail "$out" ;; esac
daemons_down lost bad
: >"$TMP/crash-driver"
PORT=
DRIVER=$TMP/crash-driver node_up bad2
broker_up lost2
out=$(client lost2 try) && fail "served by a worker that died"
case $out in "refused 2: "*"signal 6 (SIGABRT)"*) ;; *) fail "$out" ;; esac
daemons_down lost2 bad2

# A driver that takes its time isn't a missing one: more sessions at once than there are warm workers all get theirs, after a
# wait. (On a loaded machine with a GPU a worker was ready after 15 s, and programs were told that there is no device.)
PORT=
: >"$TMP/slow-driver"
DRIVER=$TMP/slow-driver node_up slow
broker_up patient
for i in 1 2 3; do start_bg "slow$i" "$OUT/tests/fake/fake-client" "$TMP/patient.sock" hold; done
for i in 1 2 3; do wait_for 25 test -s "$TMP/slow$i.log" || fail "session $i got no worker: $(tail -3 "$TMP/patient.log")"; done
for i in 1 2 3; do kill -KILL "$(bg_pid "slow$i")"; done
log_has patient "is refused" && fail "a session was refused"
daemons_down patient slow

PORT=
node_up node
broker_up broker
start_bg other "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/other.log" || fail "no session"
# op: what the worker does; and the end that its client sees.
end() {
	local expected=$1 text=$2
	shift 2
	same "end of op $1" "ended: $expected" "$(client broker op "$@")"
	log_has broker "$text" || fail "op $1: the broker's log does not say '$text'"
}
end 2 "signal 6 (SIGABRT)" 7
end 2 "ended with status 17" 8 17
end 4 "its reply ring is nonsense" 9
end 4 "tail of its command ring" 10
end 4 "a frame that a worker can't send" 11
end 4 "a frame that a worker can't send" 14
alive "$(head -1 "$TMP/other.log")" || fail "another client's worker has gone, too"
client broker echo 20
kill -KILL "$(bg_pid other)"
daemons_down broker node
same workers 0 "$(count_workers)"
