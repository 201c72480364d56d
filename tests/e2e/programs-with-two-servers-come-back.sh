#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# A program with GPUs of two servers, between which copies and events go: a checkpoint has a file for each. Either server is killed, then both
# at once, in the middle of its work; what is lost goes on elsewhere from its file and what it has done since, and all that it computes is right.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"
. "$(dirname "$0")/../lib/servers.sh"

servers_up --no-fuse --grace 1
pair_start small
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
wait_for 20 stand a:held b:live || fail "after a is killed: $(sessions); $(tail -3 "$TMP/client.log")"
refused "no session of pid $pid on b is lost" restore "$pid:b" "$TMP/saved" c
ctl restore "$pid" "$TMP/saved" c >"$TMP/ctl.out" 2>&1 || fail "$(cat "$TMP/ctl.out")"
say "$(cat "$TMP/ctl.out")"
stand c:live b:live || fail "after the restore: $(sessions)"
goes_on "with c and b"

# ---- both at once, from a newer one ----
saved
goes_on "after another checkpoint"
kill -KILL "$(bg_pid node_b)" "$(bg_pid node_c)"
stop_bg node_b || true
stop_bg node_c || true
wait_for 20 stand c:held b:held || fail "after b and c are killed: $(sessions); $(tail -3 "$TMP/client.log")"
node_up a
node_up b
ctl restore "$pid:c" "$TMP/saved" b >"$TMP/ctl.out" 2>&1 || fail "$(cat "$TMP/ctl.out")"
stand b:live b:held || fail "after the first: $(sessions)"
ctl restore "$pid" "$TMP/saved" a >"$TMP/ctl.out" 2>&1 || fail "$(cat "$TMP/ctl.out")"
stand b:live a:live || fail "after both: $(sessions)"
goes_on "with b and a"

# ---- as if nothing had been ----
pair_right
for n in client node_a node_b; do
	stop_bg $n || fail "$n ended with status $?: $(tail -5 "$TMP/$n.log")"
done
! grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || fail "a daemon has complained"
