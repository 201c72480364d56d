#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# /gleam/metrics is OpenMetrics 1.0 to the letter and tells the truth; its counters keep what programs that have ended counted.
# Who polls the tree a thousand times a second costs the daemon little.
# time-limit: 90
# serial
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

tree_or_skip
g=$TMP/gleam
soft_up --mount "$g" --server "attic=127.0.0.1:$(free_port)"
scrape() {
	cat "$g/metrics" >"$TMP/$1.txt"
	python3 "$TOP/tests/lib/openmetrics.py" "$TMP/$1.txt" >"$TMP/$1.values" || fail "$(cat "$TMP/$1.txt")"
	! command -v promtool >/dev/null || promtool check metrics <"$TMP/$1.txt" || fail "promtool complains of $1"
}
value() { awk -v name="$2" '{ value = $NF; $NF = ""; sub(/ $/, "") } $0 == name { print value }' "$TMP/$1.values"; }
ready() { scrape now && [ "$(value now "gleam_server_state gleam_server_state=ready server=lab")" = 1 ]; }
wait_for 15 ready || fail "$(cat "$TMP/now.values")"
scrape idle
same "attic is not ready" 0 "$(value idle "gleam_server_state gleam_server_state=ready server=attic")"
same "clients" 0 "$(value idle gleam_clients)"
same "sessions" 0 "$(value idle gleam_sessions_total)"
same "mode" 444 "$(stat -c %a "$g/metrics")"
tail -n 1 "$g/metrics" | grep -qx '# EOF' || fail "no # EOF"

LD_LIBRARY_PATH=$OUT/lib start_bg held "$OUT/tests/cuda/vecadd" 100000 40 100
working() { scrape busy && [ "$(value busy gleam_clients)" = 1 ] && [ "$(value busy gleam_clients_memory_bytes)" = 1200000 ]; }
wait_for 20 working || fail "$(cat "$TMP/busy.values")"
same "sessions" 1 "$(value busy gleam_sessions_total)"
grep -q 'gleam_gpu_info{server="lab",gpu="0",name="Gleam Software GPU"} 1' "$TMP/busy.txt" || fail "$(cat "$TMP/busy.txt")"
# Of programs sums alone: everybody may read it.
! grep -qE 'vecadd|pid' "$TMP/busy.txt" || fail "it names a program"
wait "$(bg_pid held)" || fail "vecadd: $(cat "$TMP/held.log")"
ended() { scrape ended && [ "$(value ended gleam_clients)" = 0 ]; }
wait_for 10 ended || fail "the client stays"
[ "$(value ended gleam_calls_total)" -gt "$(value busy gleam_calls_total)" ] || fail "calls of a program that has ended are lost"
[ "$(value ended gleam_calls_total)" -ge 90 ] || fail "calls: $(value ended gleam_calls_total)"
same "sessions" 1 "$(value ended gleam_sessions_total)"
program vecadd 1000 1 >/dev/null
wait_for 10 eval 'scrape more && [ "$(value more gleam_sessions_total)" = 2 ]' || fail "sessions: $(value more gleam_sessions_total)"
[ "$(value more gleam_calls_total)" -gt "$(value ended gleam_calls_total)" ] || fail "calls go down"

# A thousand reads a second, five times for half a second: what gleamd's threads use for one, the least of the five, since whatever else runs
# makes them dearer; and how often gleamd wakes up, twice, where the kernel reads by itself what is polled (root, 6.9 on) once: releases are taken
# together. 12 to 19 us on two virtual cores (18 to 33 with reads of ours; a wake-up that does nothing else is 8 to 12);
# wake-ups tell it without that noise.
cat >"$TMP/poll.py" <<'PY'
import os, sys, time
path, tasks = sys.argv[1], "/proc/%s/task" % sys.argv[2]
def used():
    return sum(int(open("%s/%s/schedstat" % (tasks, task)).read().split()[0]) for task in os.listdir(tasks)) / 1e3
def slept():
    return sum(int(line.split()[1]) for task in os.listdir(tasks) for line in open("%s/%s/status" % (tasks, task)) if line.startswith("voluntary"))
turns = []
for turn in range(5):
    count, cpu, sleeps, began = 0, used(), slept(), time.monotonic()
    while count < 500:
        file = os.open(path, os.O_RDONLY)
        assert os.read(file, 4096).endswith(b"\n")
        os.close(file)
        count += 1
        time.sleep(max(0, began + count / 1000 - time.monotonic()))
    turns.append(((used() - cpu) / count, (slept() - sleeps) / count, count / (time.monotonic() - began)))
print("%.1f %.2f %.0f" % (min(turn[0] for turn in turns), min(turn[1] for turn in turns), max(turn[2] for turn in turns)))
PY
read -r cost sleeps rate < <(python3 "$TMP/poll.py" "$g/servers/lab/load" "$(bg_pid client)")
say "a read costs $cost us of gleamd and wakes it $sleeps times, at $rate reads a second"
if ! ldd "$OUT/bin/gleamd" | grep -qE 'lib(a|t|ub)san'; then
	between "cost of a read (us)" 0 "$cost" 60
	most=2.6
	[ "$(id -u)" != 0 ] || ! printf '6.9\n%s\n' "$(uname -r)" | sort -VC || ! grep -q fuse_passthrough_read_iter /proc/kallsyms || most=1.6
	between "wake-ups a read" 0 "$sleeps" $most
fi
soft_down
