#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon with ten servers and a hundred programs that do nothing takes less than 1% of a core, scheduler, pings and reports included.
# time-limit: 90
# serial
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

servers=()
for i in 0 1 2 3 4 5 6 7 8 9; do
	PORT=$(free_port)
	node_up "node$i" --warm 0
	servers+=(--server "s$i=127.0.0.1:$PORT")
done
start_bg broker "$OUT/bin/gleamd" --socket "$TMP/broker.sock" "${servers[@]}" --no-fuse
wait_for 10 log_has broker "is ready" || fail "$(cat "$TMP/broker.log")"
for ((i = 0; i < 100; i++)); do
	"$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold >"$TMP/client.$i" 2>&1 &
done
all_there() { [ "$(client broker ask '{"cmd":"clients"}' | json clients | grep -o '"state": "live"' | wc -l)" = 100 ]; }
wait_for 40 all_there || fail "not all programs are there: $(tail -3 "$TMP/broker.log")"
same "servers that are linked" 10 "$(client broker ask '{"cmd":"servers"}' | grep -o '"state": *"ready"' | wc -l)"
sleep 2
pid=$(bg_pid broker)
ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
before=$(ticks)
sleep 5
used=$(($(ticks) - before))
say "$used hundredths of a second of CPU in 5 s"
# A tick is a hundredth: 5 of them are 1%. With a sanitizer everything takes some times as long.
limit=5
nm "$OUT/bin/gleamd" 2>/dev/null | grep -qE '__(asan|tsan|ubsan)_' && limit=50
[ "$used" -lt "$limit" ] || fail "the idle daemon took $used hundredths of a second in 5 s"
pkill -P $$ -x fake-client || true
