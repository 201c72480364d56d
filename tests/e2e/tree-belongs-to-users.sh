#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A user sees into its own programs, root into all; servers are everybody's. The same holds for gleamctl.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(other users)"
need_cmd setpriv
tree_or_skip
need_built bin/gleamctl
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
as 65534 test -x "$OUT/tests/cuda/vecadd" -a -r "$OUT/lib/libcuda.so.1" || skip "other users can't reach $OUT"
g=$TMP/gleam
soft_up --mount "$g"
LD_LIBRARY_PATH=$OUT/lib start_bg held setpriv --reuid 65534 --regid 65534 --clear-groups "$OUT/tests/cuda/vecadd" 1000 40 200
pid=$(bg_pid held)
wait_for 20 test -e "$g/clients/$pid/stats" || fail "no client: $(cat "$TMP/held.log")"
same "owner" 65534 "$(stat -c %u "$g/clients/$pid")"
same "mode of the folder" 500 "$(stat -c %a "$g/clients/$pid")"
same "owner and mode of a file" "65534 400" "$(stat -c '%u %a' "$g/clients/$pid/stats")"
same "uid" 65534 "$(as 65534 cat "$g/clients/$pid/uid")"
cat "$g/clients/$pid/stats" >/dev/null
for user in 65533; do
	! as $user ls "$g/clients/$pid" 2>/dev/null || fail "another user lists the folder"
	! as $user cat "$g/clients/$pid/stats" 2>/dev/null || fail "another user reads the file"
	same "servers" "127.0.0.1:$PORT" "$(as $user cat "$g/servers/lab/address")"
	same "gleamctl of another user" 0 "$(as $user "$OUT/bin/gleamctl" clients --json | json clients | grep -c program || true)"
	as $user "$OUT/bin/gleamctl" clients | grep -q "1 more of other users: root sees all" || fail "gleamctl hides that it hides"
	same "stats of another user's" 1 "$(status_of as $user "$OUT/bin/gleamctl" stats "$pid")"
	grep -q "or it is another user's" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
done
same "gleamctl of the user" "$pid" "$(as 65534 "$OUT/bin/gleamctl" clients --json | json clients.0.pid)"
same "gleamctl of root" "$pid" "$("$OUT/bin/gleamctl" clients --json | json clients.0.pid)"

# An ordinary user's own daemon shows its tree in a folder of its own, and says why not in /gleam.
if command -v fusermount3 >/dev/null && as 65534 test -w /dev/fuse; then
	mkdir "$TMP/own"
	chown 65534 "$TMP/own"
	start_bg own setpriv --reuid 65534 --regid 65534 --clear-groups "$OUT/bin/gleamd" --socket "$TMP/own/sock" \
		--mount "$TMP/own/gleam" --server "lab=127.0.0.1:$PORT"
	wait_for 10 log_has own "is ready" || fail "$(cat "$TMP/own.log")"
	same "own tree" lab "$(as 65534 ls "$TMP/own/gleam/servers")"
	kill -KILL "$(bg_pid own)"
	wait "$(bg_pid own)" 2>/dev/null || true
	start_bg again setpriv --reuid 65534 --regid 65534 --clear-groups "$OUT/bin/gleamd" --socket "$TMP/own/sock" \
		--mount "$TMP/own/gleam" --server "lab=127.0.0.1:$PORT"
	wait_for 10 log_has again "is ready" || fail "$(cat "$TMP/again.log")"
	log_has again "was left behind by a daemon that is gone: unmounted" || fail "$(cat "$TMP/again.log")"
	same "own tree again" lab "$(as 65534 ls "$TMP/own/gleam/servers")"
	stop_bg again || fail "ended with $?: $(cat "$TMP/again.log")"
	! mounted "$TMP/own/gleam" || fail "the user's tree is still mounted"
fi
start_bg default setpriv --reuid 65534 --regid 65534 --clear-groups "$OUT/bin/gleamd" --socket /tmp/gleam-$$.sock
wait_for 10 log_has default "is ready" || fail "$(cat "$TMP/default.log")"
log_has default "only root can mount /gleam; --mount DIR" || fail "$(cat "$TMP/default.log")"
stop_bg default
stop_bg held || true
soft_down
