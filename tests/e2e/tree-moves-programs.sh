#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# A server's name written to /gleam/clients/PID/server moves that program there. The write returns when it is known whether it can be moved; wrong
# wishes are told by errno, other users' are refused, and who waits for an answer holds up nobody.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"
. "$(dirname "$0")/../lib/gleam.sh"

tree_or_skip
need_built bin/gleamctl tests/cuda/checksum
export GLEAM_SOFTGPU_MEMORY=256M
B_PORT=$(free_port) OWN_PORT=$(free_port)
g=$TMP/gleam
path_up -- --server "b=127.0.0.1:$B_PORT" --server "none=127.0.0.1:$(free_port)" --mount "$g"
start_bg b "$OUT/bin/gleamd" --no-fuse --socket "$TMP/b.sock" --listen "127.0.0.1:$B_PORT" --driver "$OUT/lib/libsoftcuda.so" \
	--key "$TMP/key" --log debug
wait_for 15 grep -q 'is warm' "$TMP/b.log" || fail "no warm worker: $(tail -5 "$TMP/b.log")"
start() { # NAME COMMAND...
	start_bg "$1" env GLEAM_SERVER="${SERVER:-gpu}" LD_LIBRARY_PATH="$OUT/lib" "${@:2}" "$OUT/tests/cuda/checksum" 10 3 0 "$TMP/enough"
	wait_for 30 grep -q step "$TMP/$1.log" || fail "$1 does not start: $(cat "$TMP/$1.log")"
}
# writes TEXT FILE: the name of the error, or nothing
writes() { python3 -c 'import errno, os, sys
fd = os.open(sys.argv[2], os.O_WRONLY)
try:
    os.write(fd, sys.argv[1].encode())
except OSError as e:
    print(errno.errorcode[e.errno])' "$@"; }
is() { [ "$(cat "$1")" = "$2" ]; }

start p
c=$g/clients/$(bg_pid p)
same "where it is" gpu "$(cat "$c/server")"
same "mode" 600 "$(stat -c %a "$c/server")"

# ---- there and back, from within the folder, which stays ----
cd "$c"
echo b >server
wait_for 30 is server b || fail "it does not come: $(grep -h move: "$TMP/broker.log" | tail -3)"
echo gpu:0 >"$c/server"
wait_for 30 is server gpu || fail "it does not come back: $(grep -h move: "$TMP/broker.log" | tail -3)"
wait_for 10 is state live
cd "$TMP"

# ---- wrong wishes ----
same "no such server" ENOENT "$(writes nowhere "$c/server")"
same "no such GPU" ENOENT "$(writes b:7 "$c/server")"
same "no number" EINVAL "$(writes b:x "$c/server")"
same "nothing" EINVAL "$(writes ' ' "$c/server")"
same "not there" EHOSTUNREACH "$(writes none "$c/server")"
same "where it is" gpu "$(cat "$c/server")"
! echo b 2>/dev/null >"$c/state" || fail "another file can be written"

# ---- a server that does not answer: nobody waits long, and who writes may give up ----
kill -STOP "$(bg_pid b)"
start_bg writer python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.write(os.open(sys.argv[1], os.O_WRONLY), b"b\n")' "$c/server"
wait_for 10 is "$c/state" moving
alive "$(bg_pid writer)" && kill -INT "$(bg_pid writer)"
wait_for 5 eval '! alive "$(bg_pid writer)"' || fail "the writer can't be interrupted"
same "a second wish" EBUSY "$(writes gpu "$c/server")"
[ "$("$OUT/bin/gleamctl" clients --socket "$TMP/gleamd.sock" | grep -c moving)" = 1 ] || fail "gleamctl waits, too"
kill -CONT "$(bg_pid b)"
wait_for 30 is "$c/server" b || fail "it does not come: $(grep -h move: "$TMP/broker.log" | tail -3)"

# ---- one that can't be moved ----
start_bg own "$OUT/bin/gleamd" --socket "$TMP/own.sock" --listen "127.0.0.1:$OWN_PORT" --driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" \
	--server "own=127.0.0.1:$OWN_PORT" --server "b=127.0.0.1:$B_PORT" --mount "$TMP/gleam-own"
wait_for 15 grep -q 'is warm' "$TMP/own.log" || fail "no warm worker: $(tail -5 "$TMP/own.log")"
start_bg shares env GLEAM_SERVER=own GLEAM_SOCKET="$TMP/own.sock" LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/shares" other "$TMP/token"
wait_for 20 grep -q "token written" "$TMP/shares.log"
still=$(bg_pid shares)
same "one that shares memory" ENOTSUP "$(writes b "$TMP/gleam-own/clients/$still/server")"
same "where it is" own "$(cat "$TMP/gleam-own/clients/$still/server")"
stop_bg shares || true
SERVER=own start still env GLEAM_SOCKET="$TMP/own.sock"
still=$(bg_pid still)
echo b >"$TMP/gleam-own/clients/$still/server" || fail "one by the short cut: $(grep -h move: "$TMP/own.log" | tail -3)"
wait_for 30 is "$TMP/gleam-own/clients/$still/server" b || fail "it does not come: $(grep -h move: "$TMP/own.log" | tail -3)"

# ---- users move their own ----
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
	if as 65534 test -x "$OUT/tests/cuda/checksum" -a -r "$OUT/lib/libcuda.so.1"; then
		chmod 666 "$TMP/gleamd.sock"
		start user setpriv --reuid 65534 --regid 65534 --clear-groups
		u=$g/clients/$(bg_pid user)
		! as 65533 sh -c 'echo b >"$1"' - "$u/server" 2>/dev/null || fail "another user may write"
		same "where it is" gpu "$(cat "$u/server")"
		as 65534 sh -c 'echo b >"$1"' - "$u/server" || fail "its own user may not write"
		wait_for 30 is "$u/server" b || fail "it does not come: $(grep -h move: "$TMP/broker.log" | tail -3)"
	fi
fi

# ---- as if nothing had been ----
touch "$TMP/enough"
for name in p still $(declare -F as >/dev/null && [ -n "${u:-}" ] && echo user); do
	wait "$(bg_pid "$name")" || fail "$name: $(grep -v '^step' "$TMP/$name.log" | tail -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$name.log" || fail "$name: $(tail -3 "$TMP/$name.log")"
done
for name in own b; do
	stop_bg "$name" || fail "$name ended with status $?"
done
path_down
