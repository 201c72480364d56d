#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs of priority batch that fill a GPU are held back while one of priority latency waits there, and no longer than that.
# time-limit: 90
# serial
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_cmd taskset
need_built tests/cuda/load bin/gleamctl
# A GPU that really is shared: one core. Across "the network", so that commands come through the daemons.
PORT=$(free_port)
start_bg node taskset -c 0 "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver softgpu --no-fuse --warm 3
wait_for 20 log_has node "is ready" || fail "$(cat "$TMP/node.log")"
printf '[link]\ndirect = no\n' >"$TMP/client.conf"
client_start --no-fuse --config "$TMP/client.conf"
# What a step takes while it is alone is what reports tell first. (Its own launches take some milliseconds.)
start_bg quick env LD_LIBRARY_PATH="$OUT/lib" GLEAM_PRIORITY=latency "$OUT/tests/cuda/load" 100000 1 0 1 5000
works() { "$OUT/bin/gleamctl" clients --json | python3 -c '
import json, sys
sys.exit(not any(c["round_trips"] > 200 for c in json.load(sys.stdin)["clients"]))'; }
wait_for 20 works || fail "it doesn't work: $("$OUT/bin/gleamctl" clients --json)"
for i in 1 2 3; do
	start_bg "flood$i" env LD_LIBRARY_PATH="$OUT/lib" GLEAM_PRIORITY=batch "$OUT/tests/cuda/load" 100000 0 0 200
done
wait_for 20 eval "[ \$(grep -c 'session .* on lab' $TMP/client.log) = 4 ]"
held() { "$OUT/bin/gleamctl" clients --json | python3 -c '
import json, sys
print(sum(1 for c in json.load(sys.stdin)["clients"] if c["pace"] is not None))'; }
wait_for 30 eval '[ "$(held)" -ge 2 ]' || fail "nobody is held back: $("$OUT/bin/gleamctl" clients --json)"
grep "held to" "$TMP/client.log" | head -3
# They still get on.
for i in 1 2 3; do alive "$(bg_pid "flood$i")" || fail "flood$i is gone: $(cat "$TMP/flood$i.log")"; done
kill -KILL "$(bg_pid quick)"
wait_for 30 eval '[ "$(held)" = 0 ]' || fail "still held back: $("$OUT/bin/gleamctl" clients --json)"
for i in 1 2 3; do kill -KILL "$(bg_pid "flood$i")"; done
grep -q "not held back any more" "$TMP/client.log" || fail "the log doesn't say so"
soft_down
