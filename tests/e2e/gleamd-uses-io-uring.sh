#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Under load both daemons serve sockets through io_uring_enter: no epoll, poll, send or receive calls. Where io_uring is refused
# gleamd ends with a line that says so.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"
need_cmd strace
# LeakSanitizer does not work under ptrace.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

key_make "$TMP/key"
node_up node --key "$TMP/key"
broker_up broker --key "$TMP/key"
client broker echo 10
for name in node broker; do
	start_bg "strace-$name" strace -f -c -o "$TMP/calls-$name" -p "$(bg_pid $name)"
	wait_for 10 log_has "strace-$name" attached || skip "strace can't attach: $(cat "$TMP/strace-$name.log")"
done
client broker echo 200
client broker up 20000000
client broker down 10000000
for name in node broker; do
	stop_bg "strace-$name" INT || true
	wait_for 5 test -s "$TMP/calls-$name"
	grep -q io_uring_enter "$TMP/calls-$name" || fail "$name made no io_uring_enter: $(cat "$TMP/calls-$name")"
	bad=$(awk '{print $NF}' "$TMP/calls-$name" | grep -E '^(epoll_.*|p?poll|p?select6?|send(to|msg|mmsg)|recv(from|msg|mmsg)|accept4?|connect|readv|writev)$' || true)
	[ -z "$bad" ] || fail "$name used $bad"
done
daemons_down broker node

# ENOSYS and EPERM, as containers answer.
for errno in EPERM ENOSYS ENOMEM; do
	status=0
	out=$(timeout 10 strace -f -o /dev/null -e inject=io_uring_setup:error=$errno "$OUT/bin/gleamd" --no-fuse --socket "$TMP/x.sock" 2>&1) || status=$?
	same "status with $errno" 1 "$status"
	case $errno-$(tail -1 <<<"$out") in EPERM-*seccomp*allow* | ENOSYS-*Linux* | ENOMEM-*LimitMEMLOCK*) ;; *) fail "$errno: $out" ;; esac
done
