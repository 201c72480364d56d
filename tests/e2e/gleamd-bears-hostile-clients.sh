#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Clients that write nonsense into their memory or onto the socket lose their session with END_PROTOCOL; gleamd goes on and does not spin.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

node_up node
broker_up broker
for i in 0 1 2 3 4 6; do
	same "hostile $i" "ended: 4" "$(client broker hostile $i)"
done
# A doorbell that does not block: kernels differ in whether io_uring waits for it all the same; none may spin.
start_bg bell "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hostile 5
wait_for 10 test -s "$TMP/bell.log" || fail "no word of it"
descriptors() { ls "/proc/$(bg_pid broker)/fd" | wc -l; }
has_descriptors() { [ "$(descriptors)" -eq "$1" ]; }
client broker garbage # what it has for good, it has then
before=$(descriptors)
client broker garbage
wait_for 10 has_descriptors "$before" || fail "it had $before descriptors, and after packets with some it has $(descriptors)"
client broker echo 50
# A client that reads no notices: bounded, then the end.
out=$(client broker print 20000 2>&1) && fail "endless notices are kept for a client that reads none"
log_has broker "it doesn't read its notices" || fail "the log does not say why: $out"
client broker echo 50
# What is left of images, and asked for, in ways that make no sense; a client that asks and reads nothing gets an answer or two.
client broker verdicts 0 >/dev/null || fail "what was left isn't there"
for i in 1 2 3 4 5 6 7 8; do
	same "verdicts $i" "ended: 4" "$(client broker verdicts $i)"
done
client broker verdicts 9
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$(bg_pid broker)/status"; }
before=$(rss)
answers=$(client broker verdicts 2000) || fail "$answers"
between "answers to 2000 questions" 1 "$(grep -o '^[0-9]* answers' <<<"$answers" | cut -d' ' -f1)" 3
between "KiB that they cost" -100000 $(($(rss) - before)) 60000
client broker echo 50
# The daemon rests when nobody is there.
# (The client with the strange doorbell is still there.)
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
before=$(ticks "$(bg_pid broker)")
sleep 1
after=$(ticks "$(bg_pid broker)")
[ $((after - before)) -le 10 ] || fail "an idle gleamd used $((after - before)) ticks in a second"
kill -KILL "$(bg_pid bell)" 2>/dev/null || true
daemons_down broker node
