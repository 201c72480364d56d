#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# /gleam tells of servers and clients what is true: each launch of a program is counted, the load rises while one works and
# falls back to 0.00. Ordinary tools read it.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

tree_or_skip
g=$TMP/gleam
soft_up --mount "$g"
mounted "$g" || fail "not mounted: $(cat "$TMP/client.log")"
same "version" "$("$OUT/bin/gleamd" --version | cut -d' ' -f2)" "$(cat "$g/version")"
same "names" "cache clients metrics scheduler servers verdicts version" "$(ls "$g" | tr '\n' ' ' | sed 's/ $//')"

# An idle server's link is opened by whoever looks.
ready() { [ "$(cat "$g/servers/lab/state")" = ready ] && [ "$(cat "$g/servers/lab/load")" = 0.00 ]; }
wait_for 10 ready || fail "the server does not get ready: $(cat "$g/servers/lab/state")"
same "address" "127.0.0.1:$PORT" "$(cat "$g/servers/lab/address")"
same "lanes" 4 "$(cat "$g/servers/lab/lanes")"
between "round trip (ms)" 0.001 "$(cat "$g/servers/lab/rtt")" 500
same "GPU" "Gleam Software GPU" "$(cat "$g/servers/lab/gpus/0/name")"
[ "$(cat "$g/servers/lab/gpus/0/memory")" -gt 1000000 ] || fail "memory: $(cat "$g/servers/lab/gpus/0/memory")"
grep -qE '^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' "$g/servers/lab/gpus/0/uuid" || fail "uuid"

# Three launches, a second apart. After the last one it is held, so that there is time to look.
LD_LIBRARY_PATH=$OUT/lib start_bg vecadd "$OUT/tests/cuda/vecadd" 100000 3 1000
child=$BG_PID
launches() { [ "$(awk '$1 == "cuLaunchKernel" { print $2 }' "$g/clients/$child/stats")" = 3 ]; }
wait_for 30 launches || fail "launches: $(cat "$g/clients/$child/stats")"
kill -STOP "$child"
c=$g/clients/$child
cp "$c/stats" "$TMP/stats"
calls=$(cat "$c/calls")
count() { awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$TMP/stats"; }
same "launches" 3 "$(count cuLaunchKernel 2)"
same "round trips of launches" 0 "$(count cuLaunchKernel 4)"
same "copies to the device" 2 "$(count cuMemcpyHtoD_v2 2)"
same "allocations" 3 "$(count cuMemAlloc_v2 2)"
[ "$(count cuMemcpyHtoD_v2 3)" -ge 800000 ] || fail "bytes of the copies: $(count cuMemcpyHtoD_v2 3)"
# The synchronising call of the last launch may be on its way while we look.
between "synchronising calls" 2 "$(count cuCtxSynchronize 2)" 3
between "sum of calls" "$(awk '!/^#/ { n += $2 } END { print n }' "$TMP/stats")" "$calls" "$((calls + 1))"
same "memory" 1200000 "$(cat "$c/memory")"
same "server" lab "$(cat "$c/server")"
same "state" live "$(cat "$c/state")"
same "uid" "$(id -u)" "$(cat "$c/uid")"
wait_for 5 grep -qx 1 "$g/verdicts/entries" || fail "images that are known: $(cat "$g/verdicts/entries")"
same "loads that needed an answer" 1 "$(cat "$g/verdicts/misses")"
case $(cat "$c/program") in */vecadd) ;; *) fail "program: $(cat "$c/program")" ;; esac
[ "$(cat "$c/round_trips")" -ge 2 ] || fail "round trips: $(cat "$c/round_trips")"
grep -qE '^[0-9]+\.[0-9]{3}$' "$c/waited" || fail "waited: $(cat "$c/waited")"
# Tools, and one consistent content an open.
ls -lR "$g" >"$TMP/ls.out"
find "$g" -type f -print0 | xargs -0 cat >"$TMP/all.out"
grep -r live "$g" | grep -q "/clients/$child/state:live" || fail "grep -r"
same "head -c" "# name" "$(head -c 6 "$c/stats")"
tail -n 1 "$c/stats" | grep -q ^cu || fail "tail"
[ "$(df --output=fstype "$g" | tail -n 1 | cut -c1-4)" = fuse ] || fail "df"
same "blocks" 0 "$(stat -f -c %b "$g")"
exec 7<"$c/stats" 8<"$c/calls"
cd "$c"
[ "$(id -u)" != 0 ] || for bad in "touch $g/x" "mkdir $g/x" "rm $g/version" "rmdir $g/servers" "mv $g/version $g/x" "ln -s a $g/x" "ln $g/version $g/x" \
	"sh -c 'echo 1 >$g/x'" "chmod 777 $g/version"; do
	! eval "$bad" 2>"$TMP/bad.err" || fail "the tree can be written to: $bad"
	grep -q 'Operation not permitted' "$TMP/bad.err" || fail "$bad: $(cat "$TMP/bad.err")"
done
[ "$(id -u)" != 0 ] || ! sh -c "echo 1 >$g/version" 2>/dev/null || fail "version can be written to"
kill -CONT "$child"
wait_for 30 eval "! kill -0 $child"
grep -q "1 passed, 0 failed" "$TMP/vecadd.log" || fail "vecadd: $(cat "$TMP/vecadd.log")"

# What was open stays as it was; what is gone is gone, for names and for a folder that somebody is in.
wait_for 5 eval "[ ! -e $c ]" || fail "the client's folder stays"
cat <&7 >"$TMP/stats.later"
grep -q '^cuLaunchKernel 3 ' "$TMP/stats.later" || fail "an open file has changed: $(cat "$TMP/stats.later")"
[ "$(cat <&8)" -ge "$calls" ] || fail "an open file has changed"
! cat calls 2>"$TMP/cat.err" || fail "a file of a client that is gone can be opened"
grep -qE 'No such file|Stale file' "$TMP/cat.err" || fail "$(cat "$TMP/cat.err")"
! ls >/dev/null 2>"$TMP/ls.err" || fail "the folder of a client that is gone is listed"
cd "$TMP"
exec 7<&- 8<&-
same "clients" "" "$(ls "$g/clients")"

# Work without a pause: of the last five seconds it has at least one.
LD_LIBRARY_PATH=$OUT/lib start_bg busy "$OUT/tests/cuda/vecadd" 4000000 100000 1
seen() { between load 0.2 "$(cat "$g/servers/lab/load")" 1; }
wait_for 30 eval "(seen)" || fail "load beside a working client: $(cat "$g/servers/lab/load")"
stop_bg busy KILL || true
wait_for 15 eval "[ \$(cat $g/servers/lab/load) = 0.00 ]" || fail "load stays at $(cat "$g/servers/lab/load")"

soft_down
! mounted "$g" || fail "still mounted"
[ ! -e "$g" ] || fail "the folder that gleamd made is left"
