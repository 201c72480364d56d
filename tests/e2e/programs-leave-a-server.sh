#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# gleamctl drain moves all programs of a server, four at a time, while they work: each arrives where it is told and computes on as if nothing
# had been. Who can't be moved is named with the reason and stays. --no-move leaves everybody. The scheduler's decisions tell of it.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/checksum

export GLEAM_SOFTGPU_MEMORY=512M
B_PORT=$(free_port) SMALL_PORT=$(free_port)
path_up -- --server "b=127.0.0.1:$B_PORT" --server "small=127.0.0.1:$SMALL_PORT"
node_up() { # NAME PORT MEMORY
	start_bg "$1" env GLEAM_SOFTGPU_MEMORY="$3" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$1.sock" --listen "127.0.0.1:$2" \
		--driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" --log debug
	wait_for 15 grep -q 'is warm' "$TMP/$1.log" || fail "no warm worker: $(tail -5 "$TMP/$1.log")"
}
node_up b "$B_PORT" 512M
ctl() { "$OUT/bin/gleamctl" "$@" --socket "$TMP/gleamd.sock"; }
is_ready() { ctl servers --json | python3 -c 'import json, sys
sys.exit(not all(s["gpus"] for s in json.load(sys.stdin)["servers"] if s["name"] in sys.argv[1:]))' "$@"; }
servers_of() { ctl clients --json | python3 -c 'import json, sys
print(" ".join(sorted(c["server"] for c in json.load(sys.stdin)["clients"] if c["state"] == "live")))'; }

# ---- six programs leave, and nobody new comes ----
wait_for 10 is_ready gpu b
for i in 1 2 3 4 5 6; do
	start_bg "p$i" env GLEAM_SERVER=gpu LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/checksum" 10 "$i" 0 "$TMP/enough"
done
for i in 1 2 3 4 5 6; do
	wait_for 30 grep -q step "$TMP/p$i.log" || fail "p$i does not start: $(cat "$TMP/p$i.log")"
done
same "status of drain --no-move" 0 "$(status_of ctl drain --no-move gpu)"
same "where they are" "gpu gpu gpu gpu gpu gpu" "$(servers_of)"
ctl drain gpu >"$TMP/drain.out" 2>"$TMP/drain.err" || fail "drain: $(cat "$TMP/drain.out" "$TMP/drain.err")"
say "$(tail -2 "$TMP/drain.out")"
same "where they are" "b b b b b b" "$(servers_of)"
same "final lines" 6 "$(grep -cE "^[0-9]+ \(.*checksum\): moved from gpu to b: [0-9.]+ MiB of memory, .* held for [0-9.]+ ms .*: reach [0-9.]+, check .*, copy .*, last .*, switch [0-9.]+$" "$TMP/drain.out")"
grep -qx "gpu gets no new client of this machine; 6 moved, 0 are there" "$TMP/drain.out" || fail "$(cat "$TMP/drain.out")"
most=$(awk '/is moved from/ { if (++n > most) most = n } / move: .* in all$| not done: / { n-- } END { print most }' "$TMP/broker.log")
between "moves at a time" 2 "$most" 4
same "decisions" 6 "$(ctl decisions --json | python3 -c 'import json, sys
print(sum(d["policy"] == "drain" and d["moved_from"] == "gpu" and d["server"] == "b" and d["measured_s"] > 0 for d in json.load(sys.stdin)["decisions"]))')"
ctl drain --undo gpu >/dev/null

# ---- who finds no room elsewhere stays, the others go ----
start_bg secret env GLEAM_SERVER=b LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/secret" write
wait_for 20 grep -q written "$TMP/secret.log"
stop_bg node
node_up small "$SMALL_PORT" 96M
# It has been tried in vain for long: up to 16 s pass between two tries.
wait_for 40 is_ready b small
for i in 3 4 5 6; do
	kill -KILL "$(bg_pid "p$i")"
done
wait_for 10 eval '[ "$(servers_of)" = "b b b" ]' || fail "$(servers_of)"
same "status" 1 "$(status_of ctl drain b --json)"
grep -q "$(bg_pid secret) (.*secret) stays on b: " "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
grep -v '^gleamctl: ' "$TMP/status.out" >"$TMP/drain.json"
python3 "$TOP/tests/lib/schema.py" "$TOP/docs/json/gleamctl.schema.json" drain "$TMP/drain.json" || fail "$(cat "$TMP/drain.json")"
same "who stays" "1 secret" "$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(d["clients"], " ".join(m["program"].split("/")[-1] for m in d["moves"] if not m["moved"]))' "$TMP/drain.json")"
same "where they are" "b small small" "$(servers_of)"
same "an unknown server" 1 "$(status_of ctl drain smal)"
stop_bg secret KILL || true

# ---- as if nothing had been ----
touch "$TMP/enough"
for i in 1 2; do
	wait "$(bg_pid "p$i")" || fail "p$i: $(grep -v '^step' "$TMP/p$i.log" | tail -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/p$i.log" || fail "p$i: $(tail -3 "$TMP/p$i.log")"
done
for name in b small; do
	stop_bg "$name" || fail "$name ended with status $?"
done
stop_bg broker || fail "the client's daemon ended with status $?"
! grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || fail "a daemon has complained"
