# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Helpers for end-to-end tests. A test begins with
#
#	#!/bin/bash
#	# what must be seen, in a sentence
#	. "$(dirname "$0")/../lib/e2e.sh"
#
# and then has $TOP (the sources), $OUT (what was built), $TMP (its own folder, gone at the end). Any
# command that fails unexpectedly fails the test with its line number. What start_bg started is ended,
# youngest first, and its log is shown if the test fails.

set -Eeuo pipefail

TOP=${GLEAM_TOP:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
OUT=${GLEAM_OUT:-${O:-out}}
[ "${OUT#/}" != "$OUT" ] || OUT=$TOP/$OUT
TMP=$(mktemp -d "${TMPDIR:-/tmp}/gleam-e2e-XXXXXX")
# What programs compile is kept there, and not in the home of who runs the test.
export CUDA_CACHE_PATH=$TMP/compute-cache
chmod 755 "$TMP"
# Everything takes so many times as long here: with a sanitizer more than 1, as the runner says.
E2E_SLOW=${GLEAM_SLOW:-1}
E2E_SLOW=${E2E_SLOW%.*}
# How long TERM may take before KILL, in tenths of a second.
E2E_TERM_TENTHS=$((50 * E2E_SLOW))
E2E_NAMES=() E2E_PIDS=()

say() { printf '%s\n' "$*"; }

fail() {
	say "FAILED: $*" >&2
	exit 1
}

skip() {
	E2E_SKIPPED=1
	say "$*"
	exit 77
}

need_root() { [ "$(id -u)" = 0 ] || skip "needs root${1:+ $1}"; }

need_cmd() {
	local cmd
	for cmd; do
		command -v "$cmd" >/dev/null 2>&1 || skip "needs the program $cmd"
	done
}

# need_built FILE: of $OUT; absent is a failure of the build, not a reason to skip.
need_built() {
	local file
	for file; do
		[ -x "$OUT/$file" ] || fail "$OUT/$file is not built"
	done
}

# now_ns: of a clock that doesn't jump, in steps of 10 ms. The wall clock does when a virtual machine has been paused: 26 s were seen, and a
# test that failed by them.
now_ns() {
	local up
	read -r up _ </proc/uptime
	echo "${up/./}0000000"
}

# slow SECONDS: as many as that may take here. For limits, as in timeout "$(slow 10)" COMMAND.
slow() { echo $(($1 * E2E_SLOW)); }

# pause SECONDS: sleeps for so many, times the same: for what is to come in the middle of something else.
pause() {
	local all=() i
	for ((i = 0; i < E2E_SLOW; i++)); do all+=("$1"); done
	sleep "${all[@]}"
}

# wait_for SECONDS COMMAND...: until it succeeds, tried every 20 ms. Its output is dropped. So many seconds where nothing slows it down.
wait_for() {
	local limit end
	limit=$(slow "${1%.*}")
	shift
	end=$(($(now_ns) + limit * 1000000000))
	until "$@" >/dev/null 2>&1; do
		if [ "$(now_ns)" -gt "$end" ]; then
			say "waited $limit s in vain for: $*" >&2
			return 1
		fi
		sleep 0.02
	done
}

# start_bg NAME COMMAND...: in the background with its output in $TMP/NAME.log; its pid is in $BG_PID and
# by bg_pid NAME.
start_bg() {
	local name=$1
	shift
	# Emptied here: what an earlier one of this name said must not be taken for what this one will say.
	: >"$TMP/$name.log"
	"$@" >>"$TMP/$name.log" 2>&1 </dev/null &
	BG_PID=$!
	E2E_NAMES+=("$name") E2E_PIDS+=("$BG_PID")
}

bg_pid() {
	local i
	for ((i = ${#E2E_NAMES[@]} - 1; i >= 0; i--)); do
		if [ "${E2E_NAMES[i]}" = "$1" ]; then
			echo "${E2E_PIDS[i]}"
			return 0
		fi
	done
	fail "nothing called $1 was started"
}

alive() { kill -0 "$1" 2>/dev/null; }

# stop_bg NAME [SIGNAL]: ends it and returns its exit status.
stop_bg() {
	local pid tenths=0 status=0
	pid=$(bg_pid "$1")
	kill "-${2:-TERM}" "$pid" 2>/dev/null || true
	while alive "$pid" && [ "$tenths" -lt "$E2E_TERM_TENTHS" ]; do
		sleep 0.1
		tenths=$((tenths + 1))
	done
	if alive "$pid"; then
		say "$1 (pid $pid) ignored SIG${2:-TERM}" >&2
		kill -KILL "$pid" 2>/dev/null || true
	fi
	wait "$pid" 2>/dev/null || status=$?
	return "$status"
}

# A TCP port of loopback that nobody listens on at this moment.
free_port() {
	python3 -c 'import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# same WHAT EXPECTED GOT
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }

# between WHAT LOW VALUE HIGH, also for fractions
between() {
	python3 -c 'import sys; sys.exit(not float(sys.argv[1]) <= float(sys.argv[2]) <= float(sys.argv[3]))' \
		"$2" "$3" "$4" || fail "$1: $3 is not between $2 and $4"
}

# between_times WHAT LOW VALUE HIGH: the same for what was measured. A sanitizer's measures aren't asked for.
between_times() { [ "$E2E_SLOW" != 1 ] || between "$@"; }

# status_of COMMAND...: prints its exit status and drops nothing of its output ($TMP/status.out).
status_of() {
	local status=0
	"$@" >"$TMP/status.out" 2>&1 || status=$?
	echo "$status"
}

# json FIELD.FIELD... < FILE
json() {
	python3 -c 'import json, sys
value = json.load(sys.stdin)
for part in sys.argv[1].split("."):
    value = value[int(part)] if isinstance(value, list) else value[part]
print(json.dumps(value) if isinstance(value, (dict, list)) else value)' "$1"
}

# A test may define cleanup(); it runs first.
e2e_exit() {
	local status=$? i
	trap - EXIT ERR
	set +e
	if declare -F cleanup >/dev/null; then
		cleanup
	fi
	if [ "$status" != 0 ] && [ "${E2E_SKIPPED:-}" != 1 ]; then
		for ((i = 0; i < ${#E2E_NAMES[@]}; i++)); do
			say "--- log of ${E2E_NAMES[i]}:"
			tail -n 15 "$TMP/${E2E_NAMES[i]}.log"
		done
	fi
	for ((i = ${#E2E_NAMES[@]} - 1; i >= 0; i--)); do
		alive "${E2E_PIDS[i]}" && stop_bg "${E2E_NAMES[i]}" >/dev/null
	done
	rm -rf --one-file-system "$TMP"
	exit "$status"
}

trap e2e_exit EXIT
trap 'say "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR
trap 'exit 143' TERM
trap 'exit 130' INT
