#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two servers, each better at something: many round trips go to the near one, many bytes to the one behind the thick link, a model to
# the one that has it, work to the one whose GPU is free; and within two seconds of a change new programs go elsewhere. Policies, drain, decisions.
# time-limit: 300
# serial
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(network namespaces)"
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
[ "$(nproc)" -ge 2 ] || skip "needs two cores: one for each software GPU"
need_cmd taskset ip tc
need_built tests/lab/lanem tests/cuda/load bin/gleamctl
lanem=$OUT/tests/lab/lanem lab=sched$$
ctl() { "$OUT/bin/gleamctl" "$@"; }
a() { "$lanem" exec A --name "$lab" -- "$@"; }
"$OUT/bin/gleamctl" key new "$TMP/key" >/dev/null
start_bg lab "$lanem" up --name "$lab" --rtt 5 --rate 1gbit
wait_for 10 grep -qx ready "$TMP/lab.log" || skip "no lab here: $(tail -n 1 "$TMP/lab.log")"

# Equal GPUs, a core each. One across the LAN of 5 ms; one on loopback, which is slowed to 100 Mbit/s.
a ip link set lo mtu 1500
a tc qdisc replace dev lo root tbf rate 100mbit burst 6kb latency 50ms 2>"$TMP/tc.log" || skip "no tbf here: $(cat "$TMP/tc.log")"
printf '[key]\nfile = %s\n[node]\nspeed = 1\nwarm = 2\n' "$TMP/key" >"$TMP/node.conf"
start_bg far "$lanem" exec B --name "$lab" -- taskset -c 1 "$OUT/bin/gleamd" --config "$TMP/node.conf" --socket "$TMP/far.sock" \
	--listen 198.18.0.2:4711 --driver softgpu --no-fuse
start_bg near "$lanem" exec A --name "$lab" -- taskset -c 0 "$OUT/bin/gleamd" --config "$TMP/node.conf" --socket "$TMP/near.sock" \
	--listen 127.0.0.1:4711 --driver softgpu --no-fuse
for node in far near; do
	wait_for 20 log_has $node "is ready" || fail "$(cat "$TMP/$node.log")"
	wait_for 20 log_has $node "is warm" || fail "$(cat "$TMP/$node.log")"
done
printf '[key]\nfile = %s\n[servers]\nnear = 127.0.0.1:4711\nfar = 198.18.0.2:4711\n[cache]\nuse = on\n[scheduler]\nprofiles = %s\n' "$TMP/key" \
	"$TMP/profiles" >"$TMP/client.conf"
client_up() {
	start_bg client "$lanem" exec A --name "$lab" -- "$OUT/bin/gleamd" --config "$TMP/client.conf" --socket "$TMP/client.sock" --no-fuse
	wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
}
client_up

# What programs are placed by is what the network is, and not what a machine with much to do makes of one look at it.
rtts_are_known() { (between near 1 "$(ctl servers --json | json servers.0.rtt_us)" 2500) && (between far 5000 "$(ctl servers --json | json servers.1.rtt_us)" 1e6); }
known() { wait_for 30 rtts_are_known || fail "round trips: $(ctl servers --json)"; }

# The program's needs, then where it went by the scheduler.
chatty=(1 2000 0 0) heavy=(3 80 0 270) bulky=(1 1 32768 0) model=(1 1 32768 0 0 7)
run() { program load "$@" >"$TMP/run.log" 2>&1 || fail "load $*: $(cat "$TMP/run.log")"; }
newest() { ctl decisions --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["decisions"][-1][sys.argv[1]])' "$1"; }
# The GPUs are cores of this machine. Where others want these, too, one of them is really the slower one at times, and the scheduler learns that, and
# unlearns it; then it has three tries.
is_busy() { awk -v cores="$(nproc)" '{ exit !($1 > 2 * cores) }' /proc/loadavg; }
goes() { # WHERE WHAT PROGRAM...
	local where=$1 what=$2 try
	shift 2
	for try in 1 2 3; do
		known
		run "$@"
		if [ "$(newest server)" = "$where" ]; then
			say "$what: $where, predicted $(newest predicted_s) s, measured $(newest measured_s) s, second $(newest second) $(newest second_s) s"
			return
		fi
		is_busy || break
		say "$what, try $try: went to $(newest server), on a busy machine"
	done
	fail "$what: went to $(newest server), not $where: $(ctl decisions --json | tail -60)"
}

# Each runs once where it is quick, so that it is known.
GLEAM_SERVER=near run "${chatty[@]}"
GLEAM_SERVER=near run "${heavy[@]}"
GLEAM_SERVER=near run 1 1 16384 0
GLEAM_SERVER=far run "${bulky[@]}"
usable() { ctl servers --json | json "servers.$1.bandwidth_usable"; } # 0 near, 1 far; bytes a second
near_is_known() { (between near 1e6 "$(usable 0)" 45e6); }
wait_for 20 near_is_known || fail "the bandwidth of the near server: $(usable 0)"
between "bandwidth of the far one (bytes/s)" 8e6 "$(usable 1)" 130e6
same "interface of the far one" gl0 "$(ctl servers --json | json servers.1.interface)"
goes near "round trips" "${chatty[@]}"
goes far "bytes" "${bulky[@]}"
# The same bytes again, which the near one has by now: they need no link. (It has been seen twice that they are the same.)
GLEAM_SERVER=near run "${model[@]}"
GLEAM_SERVER=near run "${model[@]}"
# What its end has taught, and what the server keeps, is known here a moment later.
sleep 1
goes near "a model that is there" "${model[@]}"
goes near "work, while both are idle" "${heavy[@]}"

# A second job arrives: two seconds later work goes elsewhere. When it has left, back again.
GLEAM_SERVER=near start_bg job env LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/load" 100000 1 0 60
wait_for 10 grep -q "$OUT/tests/cuda/load.*session .* on near" "$TMP/client.log"
sleep 2
goes far "work, beside another" "${heavy[@]}"
kill -KILL "$(bg_pid job)"
sleep 2
goes near "work, after it" "${heavy[@]}"

# The far link drops to 20 Mbit/s: two seconds later bytes go the other way.
"$lanem" ctl --name "$lab" rate 20mbit >/dev/null
sleep 2
goes near "bytes, over a link that was slowed" "${bulky[@]}"
"$lanem" ctl --name "$lab" rate 1gbit >/dev/null
# Probes of an idle link alone find that only after a while: bytes that go there tell it.
far_is_thick() { (between far 20e6 "$(usable 1)" 130e6) || { GLEAM_SERVER=far run "${bulky[@]}"; return 1; }; }
wait_for 30 far_is_thick || fail "the far link is not seen to be fast again: $(usable 1)"
goes far "bytes, after that" "${bulky[@]}"

# Policies by hand.
same "policy" "* cost" "$(ctl policy | head -n 1)"
same "round robin" round-robin "$(ctl policy round-robin)"
for turn in 1 2 3 4; do run 1 1 0 0; newest server; done | sort | uniq -c | awk '{ print $1 $2 }' | paste -sd ' ' >"$TMP/turns"
same "turns" "2far 2near" "$(cat "$TMP/turns")"
same "an unknown policy" 1 "$(status_of ctl policy fastest)"
grep -q "cost, least-loaded, round-robin, pinned" "$TMP/status.out" || fail "unhelpful: $(cat "$TMP/status.out")"
same "policy after that" round-robin "$(ctl policy --json | json policy)"
ctl policy pinned >/dev/null
goes near "pinned" "${bulky[@]:0:2}" 0 1
ctl policy cost >/dev/null

# Drain: by this daemon, then at the node itself.
same "an unknown server" 1 "$(status_of ctl drain fer)"
grep -q "nearest names: far, near" "$TMP/status.out" || fail "unhelpful: $(cat "$TMP/status.out")"
ctl drain near >/dev/null
goes far "round trips, while near is drained" 1 100 0 0
same "asked for by name" 1 "$(GLEAM_SERVER=near GLEAM_LOG=1 status_of program load 1 1 0 0)"
grep -q "is drained" "$TMP/client.log" || fail "the log doesn't say why"
ctl drain --undo near >/dev/null
goes near "round trips, after that" "${chatty[@]}"
GLEAM_SOCKET=$TMP/near.sock ctl drain >/dev/null
sleep 0.5
goes far "round trips, while near drains itself" 1 100 0 0
GLEAM_SOCKET=$TMP/near.sock ctl drain --undo >/dev/null

# What was learned is there after a restart.
stop_bg client || fail "the client daemon ended with $?"
grep -q '^[0-9a-f]\{16\} ' "$TMP/profiles" || fail "nothing was remembered: $(cat "$TMP/profiles")"
same "who may read it" 600 "$(stat -c %a "$TMP/profiles")"
client_up
goes near "round trips, after a restart" "${chatty[@]}"
same "known" True "$(newest known)"
for name in client far near; do stop_bg $name || fail "$name ended with $?: $(tail -3 "$TMP/$name.log")"; done
stop_bg lab || true
