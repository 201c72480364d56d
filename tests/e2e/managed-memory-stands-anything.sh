#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Managed memory works without userfaultfd, brought by waits, under gdb with address randomisation off, and as an ordinary user; a
# program that has dirty pages of it when its server dies lives, and hears of it.
# time-limit: 150
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

path_up
managed() { # as the library finds its way: an environment before the program
	env "$@" LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/managed" >"$TMP/out" 2>&1 || fail "$*: $(tail -20 "$TMP/out")"
	say "$*: $(tail -1 "$TMP/out")"
}

managed GLEAM_TRACK=off
managed GLEAM_MANAGED=eager
managed GLEAM_MANAGED=eager GLEAM_TRACK=off
if command -v gdb >/dev/null && ! sanitized; then
	LD_LIBRARY_PATH=$OUT/lib gdb -q -batch -ex 'set debuginfod enabled off' -ex 'handle SIGSEGV nostop noprint pass' -ex run \
		--args "$OUT/tests/cuda/managed" >"$TMP/out" 2>&1 </dev/null || fail "gdb: $(tail -20 "$TMP/out")"
	grep -q 'passed, 0 failed' "$TMP/out" || fail "under gdb: $(tail -20 "$TMP/out")"
	say "under gdb: $(grep passed "$TMP/out")"
else
	say "no gdb, or a sanitizer's library: left out"
fi

# The server dies between a kernel and the host's look at its results.
mkfifo "$TMP/go"
LD_LIBRARY_PATH=$OUT/lib start_bg lost bash -c 'exec "$0" lost <"$1"' "$OUT/tests/cuda/managed" "$TMP/go"
exec 9>"$TMP/go"
wait_for 10 grep -q ready "$TMP/lost.log" || fail "nothing to lose: $(cat "$TMP/lost.log")"
kill -KILL "$(bg_pid node)"
sleep 0.3
echo go >&9
exec 9>&-
wait_for 40 grep -q 'passed' "$TMP/lost.log" || fail "the program hangs: $(cat "$TMP/lost.log")"
grep -q ', 0 failed' "$TMP/lost.log" || fail "$(cat "$TMP/lost.log")"
say "$(grep told "$TMP/lost.log")"
