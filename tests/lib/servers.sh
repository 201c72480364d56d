# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For end-to-end tests of a program with GPUs of two servers, a and b, and a third one, c, where they may go. After tests/lib/e2e.sh and soft.sh.
#
#	servers_up [OPTION]...	the three, and a client daemon with these options
#	node_up NAME		one of them, again
#	pair_start [ARG]...	the program: tests/cuda/apart until $TMP/enough is there; its process is $pid
#	pair_right		it ends by itself, and all that it has computed is right
#	goes_on WHEN		it does
#	refused WHY ARG...	gleamctl says so
#	servers, sessions	where its GPUs are: NAME..., NAME:STATE...
#	are, stand		the same as questions

need_built tests/cuda/apart bin/gleamctl
declare -A PORTS

# Their speed is told: measuring it takes the processors for a minute and a half under ThreadSanitizer.
node_up() {
	printf '[node]\nspeed = 1\n' >"$TMP/$1.conf"
	GLEAM_SOFTGPU_SEED=$1 start_bg "node_$1" "$OUT/bin/gleamd" --config "$TMP/$1.conf" --socket "$TMP/$1.sock" --listen "127.0.0.1:${PORTS[$1]}" \
		--driver softgpu --no-fuse --log debug
	wait_for 20 log_has "node_$1" "is warm" || fail "server $1 does not start: $(cat "$TMP/node_$1.log")"
}

servers_up() {
	local n
	for n in a b c; do
		PORTS[$n]=$(free_port)
		node_up $n
	done
	start_bg client "$OUT/bin/gleamd" --socket "$TMP/client.sock" --server "a=127.0.0.1:${PORTS[a]}" --server "b=127.0.0.1:${PORTS[b]}" \
		--server "c=127.0.0.1:${PORTS[c]}" --log debug "$@"
	wait_for 20 log_has client "is ready" || fail "the client daemon does not start: $(cat "$TMP/client.log")"
}

pair_start() {
	GLEAM_SERVER=a,b LD_LIBRARY_PATH=$OUT/lib start_bg pair "$OUT/tests/cuda/apart" again "$TMP/enough" "$@"
	wait_for 100 log_has pair "turn 1$" || fail "it does not start: $(cat "$TMP/pair.log")"
	pid=$(bg_pid pair)
}

pair_right() {
	touch "$TMP/enough"
	wait "$pid" || fail "$(grep -v ^turn "$TMP/pair.log" | tail -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/pair.log" || fail "$(tail -3 "$TMP/pair.log")"
}

goes_on() {
	local turns
	turns=$(grep -c ^turn "$TMP/pair.log")
	wait_for 40 eval "[ \$(grep -c ^turn '$TMP/pair.log') -gt $((turns + 1)) ]" || fail "$1: it does not go on: $(tail -3 "$TMP/pair.log"); $(sessions)"
}

ctl() { "$OUT/bin/gleamctl" "$@"; }

refused() {
	local why=$1
	shift
	same "status of gleamctl $*" 1 "$(status_of ctl "$@")"
	grep -q -- "$why" "$TMP/status.out" || fail "$*: $(cat "$TMP/status.out")"
}

sessions() {
	ctl clients --json | python3 -c 'import json, sys
print(*[c["server"] + ":" + c["state"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])])' "$pid"
}
servers() { sessions | sed 's/:[^ ]*//g'; }
stand() { [ "$(sessions)" = "$*" ]; }
are() { [ "$(servers)" = "$*" ]; }
