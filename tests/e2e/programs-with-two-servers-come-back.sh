#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# A program with GPUs of two servers, between which copies and events go: a checkpoint has a file for each. Either server is killed, then both
# at once, in the middle of its work; what is lost goes on elsewhere from its file and what it has done since, and all that it computes is right.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/apart bin/gleamctl
declare -A PORTS
node_up() { # NAME
	GLEAM_SOFTGPU_SEED=$1 start_bg "node_$1" "$OUT/bin/gleamd" --socket "$TMP/$1.sock" --listen "127.0.0.1:${PORTS[$1]}" \
		--driver softgpu --no-fuse --log debug
	wait_for 20 log_has "node_$1" "is warm" || fail "server $1 does not start: $(cat "$TMP/node_$1.log")"
}
for n in a b c; do
	PORTS[$n]=$(free_port)
	node_up $n
done
start_bg client "$OUT/bin/gleamd" --socket "$TMP/client.sock" --server "a=127.0.0.1:${PORTS[a]}" --server "b=127.0.0.1:${PORTS[b]}" \
	--server "c=127.0.0.1:${PORTS[c]}" --grace 1 --log debug --no-fuse
wait_for 20 log_has client "is ready" || fail "the client daemon does not start: $(cat "$TMP/client.log")"

GLEAM_SERVER=a,b LD_LIBRARY_PATH=$OUT/lib start_bg pair "$OUT/tests/cuda/apart" again "$TMP/enough" small
wait_for 30 log_has pair "turn 1$" || fail "it does not start: $(cat "$TMP/pair.log")"
pid=$(bg_pid pair)
ctl() { "$OUT/bin/gleamctl" "$@"; }
servers() { ctl clients --json | python3 -c 'import json, sys
print(*[c["server"] + ":" + c["state"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])])' "$pid"; }
are() { [ "$(servers)" = "$*" ]; }
goes_on() {
	local turns
	turns=$(grep -c ^turn "$TMP/pair.log")
	wait_for 40 eval "[ \$(grep -c ^turn '$TMP/pair.log') -gt $((turns + 1)) ]" || fail "$1: it does not go on: $(tail -3 "$TMP/pair.log"); $(servers)"
}
refused() { # WHY ARGUMENT...
	local why=$1
	shift
	same "status of gleamctl $*" 1 "$(status_of ctl "$@")"
	grep -q -- "$why" "$TMP/status.out" || fail "$*: $(cat "$TMP/status.out")"
}
saved() {
	# Work is under way nearly always: one in some finds no end of it.
	for try in 1 2 3 4 5; do
		ctl checkpoint "$pid" "$TMP/saved" "$@" >"$TMP/save.out" 2>&1 && break
		[ $try -lt 5 ] && grep -q "did not come to an end" "$TMP/save.out" || fail "checkpoint: $(cat "$TMP/save.out")"
	done
}

# ---- a file for each ----
mkdir -m 700 "$TMP/saved"
touch "$TMP/saved/checkpoint.3" "$TMP/saved/kept"
saved
say "$(cat "$TMP/save.out")"
same "files" "checkpoint checkpoint.2 kept" "$(cd "$TMP/saved" && echo *)"
same "modes" "600 600" "$(cd "$TMP/saved" && stat -c %a checkpoint checkpoint.2 | paste -sd' ')"
saved --json
python3 - "$TMP/save.out" <<'END' || fail "$(cat "$TMP/save.out")"
import json, sys
text, at, all = open(sys.argv[1]).read(), 0, []
while at < len(text.rstrip()):
    one, at = json.JSONDecoder().raw_decode(text, at)
    all.append(one)
    at += len(text[at:]) - len(text[at:].lstrip())
assert [(one["from"], one["sessions"]) for one in all] == [("a", 2), ("b", 2)]
END
refused "no session of pid $pid is lost" restore "$pid" "$TMP/saved" c
refused "no session of pid $pid on b is lost" restore "$pid:b" "$TMP/saved" c
same "usage" 2 "$(status_of ctl restore "$pid:" "$TMP/saved" c)"
goes_on "after a checkpoint"

# ---- one of them is lost, in the middle; the other one isn't touched ----
stop_bg node_a KILL || true
wait_for 20 are a:held b:live || fail "after a is killed: $(servers); $(tail -3 "$TMP/client.log")"
refused "no session of pid $pid on b is lost" restore "$pid:b" "$TMP/saved" c
ctl restore "$pid" "$TMP/saved" c >"$TMP/ctl.out" 2>&1 || fail "$(cat "$TMP/ctl.out")"
say "$(cat "$TMP/ctl.out")"
are c:live b:live || fail "after the restore: $(servers)"
goes_on "with c and b"

# ---- both at once, from a newer one ----
saved
goes_on "after another checkpoint"
kill -KILL "$(bg_pid node_b)" "$(bg_pid node_c)"
stop_bg node_b || true
stop_bg node_c || true
wait_for 20 are c:held b:held || fail "after b and c are killed: $(servers); $(tail -3 "$TMP/client.log")"
node_up a
node_up b
ctl restore "$pid:c" "$TMP/saved" b >"$TMP/ctl.out" 2>&1 || fail "$(cat "$TMP/ctl.out")"
are b:live b:held || fail "after the first: $(servers)"
ctl restore "$pid" "$TMP/saved" a >"$TMP/ctl.out" 2>&1 || fail "$(cat "$TMP/ctl.out")"
are b:live a:live || fail "after both: $(servers)"
goes_on "with b and a"

# ---- as if nothing had been ----
touch "$TMP/enough"
wait "$pid" || fail "$(grep -v ^turn "$TMP/pair.log" | tail -5)"
grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/pair.log" || fail "$(tail -3 "$TMP/pair.log")"
for n in client node_a node_b; do
	stop_bg $n || fail "$n ended with status $?: $(tail -5 "$TMP/$n.log")"
done
! grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || fail "a daemon has complained"
