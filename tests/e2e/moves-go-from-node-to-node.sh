#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 200
# serial
# What a move sends goes from the old server to the new one: the line of the client's machine carries a small part of it, by the kernel's
# counters. What the new server's cache has isn't sent at all, unless it was changed. Where the old server doesn't reach the new one it goes
# through the client's machine as before, and the reason is told; where their line ends in the middle the program stays. GLEAM_LONG=1: the same with 256 MiB, and a table.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(network namespaces)"
need_cmd ip
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
need_built tests/lab/lanem tests/cuda/train tests/cuda/weights tests/cuda/carried tests/fault/gleam-chaos bin/gleamctl
lanem=$OUT/tests/lab/lanem lab=n2n$$
export GLEAM_SOFTGPU_MEMORY=2G
ctl() { "$OUT/bin/gleamctl" "$@"; }
ctl key new "$TMP/key" >/dev/null
start_bg lab "$lanem" up --name "$lab" --rtt 0.3 --rate 1gbit
wait_for 10 grep -qx ready "$TMP/lab.log" || skip "no lab here: $(tail -n 1 "$TMP/lab.log")"
in_end() { "$lanem" exec "$1" --name "$lab" -- "${@:2}"; }
in_end_bg() { start_bg "$1" "$lanem" exec "$2" --name "$lab" -- "${@:3}"; }

# Both servers are one end of the LAN, and its own loopback lies between them; the client's machine is the other end.
printf '[cache]\nmemory = 512M\ndir = no\n[link]\nkeepalive = 3\n' >"$TMP/node.conf"
printf '[cache]\nuse = on\ndir = no\n' >"$TMP/client.conf"
for node in a b; do
	in_end_bg $node B "$OUT/bin/gleamd" --config "$TMP/node.conf" --no-fuse --socket "$TMP/$node.sock" \
		--listen 198.18.0.2:$([ $node = a ] && echo 4711 || echo 4712) --driver softgpu --key "$TMP/key" --log debug
	wait_for 20 log_has $node "is warm" || fail "$(cat "$TMP/$node.log")"
done
# The same server by addresses that aren't good there: one of loopback, and one that only the client's machine knows.
in_end A ip addr add 10.99.99.1/32 dev lo
in_end_bg alone A "$OUT/tests/fault/gleam-chaos" --listen 127.0.0.1:4800 --target 198.18.0.2:4712
in_end_bg apart A "$OUT/tests/fault/gleam-chaos" --listen 10.99.99.1:4800 --target 198.18.0.2:4712
in_end_bg client A "$OUT/bin/gleamd" --config "$TMP/client.conf" --no-fuse --socket "$TMP/client.sock" --key "$TMP/key" --log debug \
	--server a=198.18.0.2:4711 --server b=198.18.0.2:4712 --server alone=127.0.0.1:4800 --server apart=10.99.99.1:4800
wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"

# bytes END INTERFACE: both directions of the LAN, one of loopback, where each byte is both
bytes() { in_end "$1" cat /proc/net/dev | awk -v i="$2:" '$1 == i {printf "%.0f\n", $2 + (i == "lo:" ? 0 : $10)}'; }
# moves PROGRAM SERVER: $TMP/move has the answer, client and between what went over the two lines meanwhile
moves() {
	local client between
	client=$(bytes A gl0) between=$(bytes B lo)
	ctl migrate "$(bg_pid "$1")" "$2" --json >"$TMP/move" || fail "$1 to $2: $(tail -3 "$TMP/client.log")"
	client=$(($(bytes A gl0) - client)) between=$(($(bytes B lo) - between))
	printf '{"client": %d, "between": %d}' "$client" "$between" >"$TMP/bytes"
	python3 - "$TMP" "$1 to $2" <<'END'
import json, sys
move, lines = json.load(open(sys.argv[1] + "/move")), json.load(open(sys.argv[1] + "/bytes"))
print("| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f | %.2f |" % (sys.argv[2], move["way"], *(n / 1048576 for n in (move["memory"],
      move["bytes"], move["bytes_direct"], move["bytes_cached"], lines["client"], lines["between"])), move["pause_ms"], move["total_s"]))
END
}
# is PYTHON: of the move m and the bytes by line
is() {
	python3 -c 'import json, sys
m, line = json.load(open(sys.argv[1] + "/move")), json.load(open(sys.argv[1] + "/bytes"))
MIB = 1 << 20
sys.exit(not eval(sys.argv[2]))' "$TMP" "$1" || fail "not so: $1: $(cat "$TMP/move" "$TMP/bytes"; grep -h 'move:' "$TMP/client.log" | tail -3)"
}
ends() { wait "$(bg_pid "$1")" || fail "$1: $(grep -v '^loss' "$TMP/$1.log")"; }
size=32
[ -z "${GLEAM_LONG:-}" ] || size=256
say "| what | way | memory | sent | of it direct | cached | client's line | between nodes | pause ms | total s |"

# ---- from node to node ----
rm -f "$TMP/enough"
start_bg train env GLEAM_SERVER=a LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/train" 1 "$TMP/enough" $size 4 20
wait_for 60 grep -q '^loss 1 ' "$TMP/train.log" || fail "it does not start: $(cat "$TMP/train.log")"
moves train b
is 'm["way"] == "node to node" and m["bytes_direct"] >= '$size' * MIB'
is 'line["client"] < m["bytes_direct"] / 10'
# What compresses is less there.
is 'line["between"] >= 0.9 * m["bytes_direct"]'
moves train a
is 'm["way"] == "node to node" and line["client"] < m["bytes_direct"] / 10'

# ---- where that isn't possible ----
moves train alone
is 'm["way"] == "through this machine" and m["way_why"] and m["bytes_direct"] == 0'
is 'line["client"] >= '$size' * MIB'
grep -q 'contents go through this machine: the address of the new server is good on this machine alone' "$TMP/client.log" || fail "no reason in the log"
moves train a
moves train apart
is 'm["way"] == "through this machine" and "apart" in m["way_why"] and "10.99.99.1" in m["way_why"]'
is 'line["client"] >= '$size' * MIB'

# ---- the line between the servers ends, and theirs to the client's machine doesn't ----
moves train a
# Each round over its memory takes a while, so that there is one to be cut.
"$lanem" ctl --name "$lab" rtt 300 >/dev/null
n=$(grep -c 'contents go from a to b' "$TMP/client.log")
start_bg migrate "$OUT/bin/gleamctl" migrate "$(bg_pid train)" b
wait_for 20 eval '[ $(grep -c "contents go from a to b" "$TMP/client.log") -gt '"$n"' ]' || fail "no way: $(tail -3 "$TMP/client.log")"
in_end B ip link set lo down
wait_for 30 eval '! alive "$(bg_pid migrate)"' || fail "a move without a way has no end: $(tail -3 "$TMP/client.log")"
if wait "$(bg_pid migrate)"; then fail "it moved without a way: $(cat "$TMP/migrate.log")"; fi
grep -qE 'the link from a to b is lost|b hears no more of a|contents have been lost' "$TMP/migrate.log" || fail "$(cat "$TMP/migrate.log")"
"$lanem" ctl --name "$lab" rtt 0.3 >/dev/null
n=$(grep -c '^loss' "$TMP/train.log")
wait_for 20 eval '[ $(grep -c "^loss" "$TMP/train.log") -gt '"$((n + 5))"' ]' || fail "the program doesn't go on"
# Without that line from the beginning: nobody answers, for two seconds at most.
moves train b
is 'm["way"] == "through this machine" and "a doesn" in m["way_why"] and m["total_s"] < 15'
in_end B ip link set lo up
moves train a
is 'm["way"] == "node to node"'
touch "$TMP/enough"
ends train
grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/train.log" || fail "$(tail -3 "$TMP/train.log")"

# ---- arrays and images go that way, too: commands are what is left ----
start_bg arrays env CARRIED_QUIET=1 GLEAM_SERVER=a LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/carried" 100 3 "$TMP/arrays" "$TMP/arrays"
wait_for 30 grep -q '^step: it pauses' "$TMP/arrays.log" || fail "$(cat "$TMP/arrays.log")"
for to in b a; do
	moves arrays $to
	is 'm["way"] == "node to node" and m["bytes_direct"] > 0.9 * MIB and m["bytes"] - m["bytes_direct"] < 0.2 * MIB'
done
touch "$TMP/arrays"
ends arrays

# ---- what the new server's cache has ----
head -c 24000000 /dev/urandom >"$TMP/model"
touch -d '1 minute ago' "$TMP/model"
# has SERVER: the whole model, once for each mode so far
has() { ctl cache --json | python3 -c 'import json, sys
sys.exit(not any(s["name"] == sys.argv[1] and s.get("bytes", 0) >= 0.9 * 24e6 * int(sys.argv[2]) for s in json.load(sys.stdin)["servers"]))' "$1" "$turns"; }
turns=0
for mode in mapped heap; do
	turns=$((turns + 1))
	GLEAM_SERVER=b program weights "$TMP/model" $mode >"$TMP/first.out" || fail "$(cat "$TMP/first.out")"
	rm -f "$TMP/enough"
	start_bg $mode env GLEAM_SERVER=a LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/weights" "$TMP/model" $mode until "$TMP/enough"
	wait_for 60 grep -q 'waits' "$TMP/$mode.log" || fail "$(cat "$TMP/$mode.log")"
	# Names are made by threads that have time.
	wait_for 40 eval 'has a && has b' || fail "not in the caches: $(ctl cache)"
	moves $mode b
	is 'm["way"] == "node to node" and m["bytes_cached"] > 0.8 * 24e6'
	is 'line["client"] + line["between"] < 0.3 * 24e6'
	# And back: there they have been seen, too.
	moves $mode a
	is 'm["bytes_cached"] > 0.8 * 24e6 and line["client"] + line["between"] < 0.3 * 24e6'
	touch "$TMP/enough"
	ends $mode
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$mode.log" || fail "$(tail -3 "$TMP/$mode.log")"
done
bad=$(grep -lE 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || true)
[ -z "$bad" ] || fail "somebody has complained: $(grep -hE -A20 'Sanitizer|runtime error:|Assertion' $bad | head -40)"
for name in client a b; do stop_bg $name || fail "$name ended with $?: $(tail -3 "$TMP/$name.log")"; done
for name in alone apart lab; do stop_bg $name || true; done
