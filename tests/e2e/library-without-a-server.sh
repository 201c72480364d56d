#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Without a GPU to be had a program learns so soon, without output and without harm; a later process finds the daemon.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"

need_cmd python3
need_built bin/gleamd bin/gleam-worker lib/libcuda.so.1 lib/libsoftcuda.so

cat >"$TMP/probe.py" <<'END'
import ctypes, sys, time

cuda = ctypes.CDLL(sys.argv[1])
start = time.monotonic()
first = cuda.cuInit(0)
took = time.monotonic() - start
count = ctypes.c_int(-1)
asked = cuda.cuDeviceGetCount(ctypes.byref(count))
start = time.monotonic()
again = cuda.cuInit(0)
took_again = time.monotonic() - start
print(first, asked, count.value, again, f"{took:.3f} {took_again:.3f}")
END

# probe SOCKET -> "first asked count again seconds seconds"; whatever the library prints would be in it too.
probe() {
	GLEAM_SOCKET=$1 python3 "$TMP/probe.py" "$OUT/lib/libcuda.so.1" 2>&1
}

# expect_none WHAT SOCKET SECONDS: NO_DEVICE or SYSTEM_NOT_READY within that time, then NOT_INITIALIZED, then the same at once.
expect_none() {
	local out first asked count again took took_again
	out=$(probe "$2")
	say "$1: $out"
	read -r first asked count again took took_again <<<"$out"
	case $first in
	100 | 802) ;;
	*) fail "$1: cuInit gave $first" ;;
	esac
	same "$1: cuDeviceGetCount" "3 -1" "$asked $count"
	same "$1: cuInit again" "$first" "$again"
	between "$1: seconds" 0 "$took" "$3"
	between "$1: seconds the second time" 0 "$took_again" 0.05
}

expect_none "no socket" "$TMP/absent.sock" 0.05
expect_none "a path that is too long" "$TMP/$(printf 'x%.0s' {1..200})" 0.05
expect_none "a directory" "$TMP" 0.05

python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])' "$TMP/left.sock"
expect_none "a socket with nobody behind" "$TMP/left.sock" 0.05

start_bg alone "$OUT/bin/gleamd" --socket "$TMP/alone.sock" --no-fuse --config /dev/null
wait_for 5 test -S "$TMP/alone.sock"
expect_none "a daemon without servers" "$TMP/alone.sock" 3

port=$(free_port)
start_bg lost "$OUT/bin/gleamd" --socket "$TMP/lost.sock" --server "gone=127.0.0.1:$port" --no-fuse --config /dev/null
wait_for 5 test -S "$TMP/lost.sock"
expect_none "a server that isn't there" "$TMP/lost.sock" 3

# It accepts and says nothing.
start_bg mute python3 -c 'import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
open(sys.argv[2], "w").close()
time.sleep(100)' "$port" "$TMP/listens"
wait_for 5 test -e "$TMP/listens"
expect_none "a server that says nothing" "$TMP/lost.sock" 3
stop_bg mute || true

start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$port" --driver "$OUT/lib/libsoftcuda.so" \
	--worker "$OUT/bin/gleam-worker" --no-fuse --config /dev/null
served() { [ "$(probe "$TMP/lost.sock" | cut -d' ' -f1-4)" = "0 0 1 0" ]; }
wait_for 20 served
