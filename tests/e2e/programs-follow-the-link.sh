#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 900
# serial
# [scheduler] migrate = auto: when a link drops to 100 Mbit/s, a program that sends much moves to the server that is better now, within ten
# seconds, and one that computes stays; a link that swings moves nobody again. The decision says why. Without the setting nobody moves.
# GLEAM_LONG=1: it swings for ten minutes.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(network namespaces)"
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
need_built tests/lab/lanem tests/cuda/load bin/gleamctl
lanem=$OUT/tests/lab/lanem lab=follow$$
ctl() { "$OUT/bin/gleamctl" "$@"; }
rate() { "$lanem" ctl --name "$lab" rate "$1" >/dev/null; }
ctl key new "$TMP/key" >/dev/null
start_bg lab "$lanem" up --name "$lab" --rtt 0.3 --rate 1gbit
wait_for 10 grep -qx ready "$TMP/lab.log" || skip "no lab here: $(tail -n 1 "$TMP/lab.log")"

# A quick GPU across the LAN, a slow one on this machine. Speeds are told, so that what is measured here doesn't matter.
node() { # NAME END SPEED ADDRESS
	printf '[key]\nfile = %s\n[node]\nspeed = %s\n' "$TMP/key" "$3" >"$TMP/$1.conf"
	start_bg "$1" "$lanem" exec "$2" --name "$lab" -- "$OUT/bin/gleamd" --config "$TMP/$1.conf" --socket "$TMP/$1.sock" \
		--listen "$4" --driver softgpu --no-fuse
	wait_for 20 log_has "$1" "is ready" || fail "$(cat "$TMP/$1.log")"
	wait_for 20 log_has "$1" "is warm" || fail "$(cat "$TMP/$1.log")"
}
node far B 1 198.18.0.2:4711
node near A 0.5 127.0.0.1:4711
client_up() { # off|auto
	printf '[key]\nfile = %s\n[servers]\nfar = 198.18.0.2:4711\nnear = 127.0.0.1:4711\n[cache]\nuse = off\n[scheduler]\nprofiles = no\nmigrate = %s\n' \
		"$TMP/key" "$1" >"$TMP/client.conf"
	start_bg client "$lanem" exec A --name "$lab" -- "$OUT/bin/gleamd" --config "$TMP/client.conf" --socket "$TMP/client.sock" --no-fuse
	wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
}
server_of() { ctl clients --json | python3 -c 'import json, sys
print([c["server"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])][0])' "$(bg_pid "$1")"; }
is_on() { [ "$(server_of "$1")" = "$2" ]; }
# start NAME STEPS...: on the far server, and at it for five seconds.
start() {
	start_bg "$1" env LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/load" "${@:2}"
	wait_for 20 is_on "$1" far || fail "$1 is on $(server_of "$1"): $(ctl decisions)"
}
moves() { grep -c "the scheduler moves it" "$TMP/client.log" || true; }

# ---- off: nobody moves ----
client_up off
# (Until much is known of a link either server is a good choice.)
ctl drain --no-move near >/dev/null
start idle 1000000 1 1024 0
sleep 3
ctl drain --undo near >/dev/null
rate 100mbit
sleep 7
same "where it is, without being asked for" far "$(server_of idle)"
stop_bg idle KILL || true
stop_bg client || fail "the client daemon ended with $?"
rate 1gbit

# ---- auto ----
client_up auto
ctl drain --no-move near >/dev/null
start sends 1000000 1 1024 0
start computes 1000000 1 0 20
# So much has been seen of them. How much a link of 1 Gbit/s carries depends on this machine: until it drops there is no other server.
sleep 5
same "moves on a good link" 0 "$(moves)"
rate 100mbit
ctl drain --undo near >/dev/null
from=$(now_ns)
wait_for 30 is_on sends near || fail "it stays: $(grep scheduler "$TMP/client.log"; ctl servers; ctl decisions)"
took=$((($(now_ns) - from) / 1000000))
say "moved after $took ms: $(grep 'the scheduler moves it' "$TMP/client.log")"
between "from the drop until it runs there (ms)" 0 "$took" 10000
same "the other one, which gains nothing" far "$(server_of computes)"
same "the decision" "far near True" "$(ctl decisions --json | python3 -c 'import json, sys
d = [d for d in json.load(sys.stdin)["decisions"] if d["policy"] == "migrate"][-1]
print(d["moved_from"], d["server"], d["second_s"] > d["predicted_s"])')"

# ---- it swings ----
end=$((SECONDS + 8))
[ -z "${GLEAM_LONG:-}" ] || end=$((SECONDS + 600))
while [ $SECONDS -lt $end ]; do
	rate 1gbit
	sleep 2
	rate 100mbit
	sleep 4
done
same "moves, while the link swings" 1 "$(moves)"
for name in sends computes; do
	alive "$(bg_pid $name)" || fail "$name has ended: $(cat "$TMP/$name.log")"
	stop_bg $name KILL || true
done
for name in client far near; do stop_bg $name || fail "$name ended with $?: $(tail -3 "$TMP/$name.log")"; done
! grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || fail "a daemon has complained"
stop_bg lab || true
