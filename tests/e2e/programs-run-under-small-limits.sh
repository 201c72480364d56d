#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# Page-locked memory is a promise of the server's, so a program that may lock 64 KiB gets what it asks for; and nothing of ours lies in
# /dev/shm, be it small, full or not ours to write (field case P-032).
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(mounts; another user)"
need_cmd setpriv
soft_up
# as_user PROGRAM...: an ordinary user, who may lock 64 KiB
as_user() {
	(
		ulimit -l 64
		LD_LIBRARY_PATH=$OUT/lib HOME=/ timeout "$(slow 60)" setpriv --reuid=65534 --regid=65534 --clear-groups "$OUT/tests/cuda/$1" "${@:2}"
	) >"$TMP/limited.out" 2>&1
}
tries() {
	local name
	for name in mapped "cases_memory pinned ${2:-16}"; do
		# shellcheck disable=SC2086 # a program and its arguments
		as_user $name || fail "$1: $name: $(tail -5 "$TMP/limited.out")"
	done
	say "$1: as ever"
}
tries "64 KiB may be locked" 128
mount -t tmpfs -o size=64k,mode=1777 none /dev/shm
tries "/dev/shm of 64 KiB"
head -c 65536 /dev/zero >/dev/shm/full 2>/dev/null || true
tries "/dev/shm is full"
mount -o remount,ro /dev/shm
tries "/dev/shm can only be read"
umount /dev/shm
soft_down
