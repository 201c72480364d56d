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
calls=epoll_wait,epoll_pwait,epoll_ctl,poll,ppoll,select,pselect6,sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg,accept,accept4,connect,readv,writev
for name in node broker; do
	start_bg "strace-$name" strace -f -yy -s 0 -e "trace=io_uring_enter,$calls" -o "$TMP/calls-$name" -p "$(bg_pid $name)"
	wait_for 10 log_has "strace-$name" attached || skip "strace can't attach: $(cat "$TMP/strace-$name.log")"
done
client broker echo 200
client broker up 20000000
client broker down 10000000
for name in node broker; do
	stop_bg "strace-$name" INT || true
	wait_for 5 test -s "$TMP/calls-$name"
	grep -q io_uring_enter "$TMP/calls-$name" || fail "$name made no io_uring_enter: $(tail -5 "$TMP/calls-$name")"
	# How the machine's links are is asked by libnl now and then, which knows nothing of io_uring; a worker is told once, without
	# waiting, whose it is.
	bad=$(grep -vE 'io_uring_enter|<NETLINK:|sendto.*<UNIX-STREAM:.*MSG_DONTWAIT|resumed>|^[0-9]+ +(---|\+\+\+)' "$TMP/calls-$name" | head -5 || true)
	[ -z "$bad" ] || fail "$name used $bad"
done
daemons_down broker node

# ENOSYS and EPERM, as containers answer.
for errno in EPERM ENOSYS ENOMEM; do
	status=0
	out=$(timeout "$(slow 10)" strace -f -o /dev/null -e inject=io_uring_setup:error=$errno "$OUT/bin/gleamd" --no-fuse --socket "$TMP/x.sock" 2>&1) || status=$?
	same "status with $errno" 1 "$status"
	case $errno-$(tail -1 <<<"$out") in EPERM-*seccomp*allow* | ENOSYS-*Linux* | ENOMEM-*LimitMEMLOCK*) ;; *) fail "$errno: $out" ;; esac
done
