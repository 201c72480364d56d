#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# One daemon that offers its GPUs and serves this machine's programs: they share memory with their workers, give right results,
# and nothing of theirs goes over the link; with --no-direct it does. Deaths on either side end the session, and nothing else.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

both_up() {
	PORT=$(free_port)
	start_bg node "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" --listen "127.0.0.1:$PORT" \
		--driver "$OUT/lib/libsoftcuda.so" --server "here=127.0.0.1:$PORT" --log debug "$@"
	wait_for 15 grep -q 'is warm' "$TMP/node.log" || fail "no warm worker: $(tail -5 "$TMP/node.log")"
	export GLEAM_SOCKET=$TMP/gleamd.sock
}

both_down() {
	stop_bg node || fail "gleamd ended with status $?: $(tail -5 "$TMP/node.log")"
	! grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || fail "the daemon has complained"
}

# FIELD of the newest client, while it runs.
client_field() {
	"$OUT/bin/gleamctl" clients --json --socket "$TMP/gleamd.sock" | python3 -c 'import json, sys
clients = [c for c in json.load(sys.stdin)["clients"] if c["state"] == sys.argv[2]]
print(clients[-1][sys.argv[1]] if clients else "")' "$1" "${2:-live}"
}
field_is() { [ "$(client_field "$1")" = "$2" ]; }
workers() { pgrep -c -P "$(bg_pid node)" gleam-worker || true; }
workers_are() { [ "$(workers)" = "$1" ]; }

both_up
for program in vecadd copies streams mapped printf memory cases_callbacks bandwidth uploaders pages; do
	[ "$program" = cases_callbacks ] && sanitized && continue
	cuda "$program" >"$TMP/$program.out" 2>&1 || fail "$program: $(tail -20 "$TMP/$program.out")"
	say "$program: $(tail -1 "$TMP/$program.out")"
done
# Large copies with threads that help, also where the machine has few cores.
GLEAM_COPIERS=3 cuda bandwidth 1024 8192 2 >"$TMP/helped.out" 2>&1 || fail "with helpers: $(tail -20 "$TMP/helped.out")"
GLEAM_COPIERS=many GLEAM_LOG=1 cuda bandwidth 1024 1024 1 >"$TMP/helped.out" 2>&1 || fail "GLEAM_COPIERS=many: $(tail -20 "$TMP/helped.out")"
grep -q "GLEAM_COPIERS=many: not a number" "$TMP/helped.out" || fail "nothing said of GLEAM_COPIERS=many: $(cat "$TMP/helped.out")"
GLEAM_PAGES=copied cuda pages >"$TMP/copied.out" 2>&1 || fail "pages, copied: $(tail -20 "$TMP/copied.out")"
grep -q "this machine's own worker" "$TMP/node.log" || fail "no session shared memory: $(grep session "$TMP/node.log" | tail -5)"
grep -q "without us in between" "$TMP/node.log" || fail "the node's side says nothing"

# While one runs: shown as direct, busy, its bytes counted by the library and none of them sent.
LD_LIBRARY_PATH=$OUT/lib start_bg calls "$OUT/tests/cuda/latency" 100000000
wait_for 20 field_is direct True || fail "not direct: $("$OUT/bin/gleamctl" clients --json --socket "$TMP/gleamd.sock")"
trips() { [ "$(client_field round_trips)" -ge 1000 ]; }
wait_for 20 trips || fail "round trips: $(client_field round_trips)"
same "bytes on the link" 0 "$(client_field link_sent)"
same "bytes from the link" 0 "$(client_field link_received)"

# What it has page-locked its worker has mapped, too, unless it wishes otherwise; elsewhere it is copied.
for kind in shared copied; do
	start_bg pages env GLEAM_PAGES=$kind LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/pages" "$TMP/enough"
	wait_for 20 grep -q round "$TMP/pages.log" || fail "pages $kind: $(cat "$TMP/pages.log")"
	worker=$(grep -oE 'worker [0-9]+$' "$TMP/node.log" | tail -1 | cut -d' ' -f2)
	maps() { grep -c 'memfd:gleam-pages' "/proc/$1/maps" || true; }
	wanted=$([ $kind = shared ] && echo 1 || echo 0)
	same "files of pages in the program, $kind" "$wanted" "$(maps "$(bg_pid pages)")"
	same "and in its worker" "$wanted" "$(maps "$worker")"
	touch "$TMP/enough"
	wait_for 20 grep -q '1 passed, 0 failed' "$TMP/pages.log" || fail "pages $kind: $(tail -3 "$TMP/pages.log")"
	stop_bg pages || true
	rm "$TMP/enough"
done

# The program is killed: its worker ends, a warm one waits for the next.
kill -9 "$(bg_pid calls)"
wait_for 10 workers_are 1 || fail "$(workers) workers after the program's death"
stop_bg calls || true

# The worker is killed: the program's next call fails, and the daemon serves others.
wait_for 15 workers_are 1
LD_LIBRARY_PATH=$OUT/lib start_bg victim "$OUT/tests/cuda/latency" 100000000
wait_for 20 field_is direct True || fail "the second one is not direct"
wait_for 20 trips || fail "the second one makes no calls"
worker=$(grep -oE 'worker [0-9]+$' "$TMP/node.log" | tail -1 | cut -d' ' -f2)
kill -9 "$worker"
ended() { ! readlink "/proc/$(bg_pid victim)/exe" >/dev/null; }
wait_for 10 ended || fail "the program goes on without its worker"
stop_bg victim && fail "the program ended as if all were well"
cuda vecadd 1000 >/dev/null || fail "no program runs any more"
both_down

both_up --no-direct
LD_LIBRARY_PATH=$OUT/lib start_bg calls "$OUT/tests/cuda/latency" 100000000
wait_for 20 trips || fail "round trips: $(client_field round_trips)"
same "direct" False "$(client_field direct)"
[ "$(client_field link_sent)" -ge 10000 ] || fail "nothing went over the link"
kill -9 "$(bg_pid calls)"
stop_bg calls || true
both_down
