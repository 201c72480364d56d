#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 60
# No small call costs a delayed acknowledgement: every TCP socket of both daemons sends at once, and a call over a network of 1 ms
# takes a few of them, also the first after a pause (field case P-028).
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(network namespaces; descriptors of other processes)"
lan_up 1

p50() { sed -n 's/.*"p50": \([0-9]*\).*/\1/p' "$TMP/latency.out"; }
program latency 300 >"$TMP/latency.out" 2>&1 || fail "$(cat "$TMP/latency.out")"
# 40 ms each with Nagle's algorithm on one side and a delayed acknowledgement on the other.
between "median of a small call (us)" 900 "$(p50)" 15000
sleep 3
program latency 1 >"$TMP/latency.out" 2>&1 || fail "$(cat "$TMP/latency.out")"
say "a call after a pause: $(p50) us"

# lanem's exec becomes the daemon, or is its parent; the daemon itself may have children of its name for a moment.
daemon() { [ "$(cat "/proc/$(bg_pid "$1")/comm")" = gleamd ] && bg_pid "$1" || pgrep -o -P "$(bg_pid "$1")" gleamd; }
python3 - "$(daemon node)" "$(daemon client)" <<'PYTHON' || fail "a socket without TCP_NODELAY"
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, sys.argv[1:]):
    pidfd = libc.syscall(434, pid, 0)
    assert pidfd >= 0, f"pidfd_open of {pid}"
    links = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
        except OSError:
            continue
        fd = libc.syscall(438, pidfd, int(name), 0)
        if fd < 0:
            continue
        s = socket.socket(fileno=fd)
        if s.family not in (socket.AF_INET, socket.AF_INET6) or s.type != socket.SOCK_STREAM:
            continue
        try:
            s.getpeername()
        except OSError:
            continue # it listens
        links += 1
        if not s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY):
            sys.exit(f"process {pid}: {s.getsockname()} to {s.getpeername()} waits for acknowledgements")
    print(f"process {pid}: {links} connections, all of them send at once")
    assert links >= 2, "a link has a command lane and bulk lanes"
PYTHON
stop_bg client
stop_bg node
