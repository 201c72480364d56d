#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 200
# A program with GPUs of two servers: those of either move to a third one and back, or together to one, while copies, events and page-locked
# memory go between them; a drain of one server moves what is there; which is to go has to be said, in gleamctl and in /gleam.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/apart bin/gleamctl
declare -A PORTS
for n in a b c; do
	PORTS[$n]=$(free_port)
	GLEAM_SOFTGPU_SEED=$n start_bg "node_$n" "$OUT/bin/gleamd" --socket "$TMP/$n.sock" --listen "127.0.0.1:${PORTS[$n]}" \
		--driver softgpu --no-fuse --log debug
	wait_for 20 log_has "node_$n" "is warm" || fail "server $n does not start: $(cat "$TMP/node_$n.log")"
done
tree=
if [ -e /dev/fuse ] && [ "$(id -u)" = 0 ] && "$OUT/bin/gleamd" --help | grep -q -- --mount; then
	tree=$TMP/gleam
	mkdir "$tree"
fi
start_bg client "$OUT/bin/gleamd" --socket "$TMP/client.sock" --server "a=127.0.0.1:${PORTS[a]}" --server "b=127.0.0.1:${PORTS[b]}" \
	--server "c=127.0.0.1:${PORTS[c]}" --log debug ${tree:+--mount "$tree"} $([ -n "$tree" ] || echo --no-fuse)
wait_for 20 log_has client "is ready" || fail "the client daemon does not start: $(cat "$TMP/client.log")"

GLEAM_SERVER=a,b LD_LIBRARY_PATH=$OUT/lib start_bg pair "$OUT/tests/cuda/apart" again "$TMP/enough"
wait_for 30 log_has pair "turn 1$" || fail "it does not start: $(cat "$TMP/pair.log")"
pid=$(bg_pid pair)
move() { "$OUT/bin/gleamctl" migrate "$@"; }
servers() { "$OUT/bin/gleamctl" clients --json | python3 -c 'import json, sys
print(*[c["server"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])])' "$pid"; }
are() { [ "$(servers)" = "$*" ]; }
goes_on() {
	local turns
	turns=$(grep -c ^turn "$TMP/pair.log")
	wait_for 40 eval "[ \$(grep -c ^turn '$TMP/pair.log') -gt $((turns + 1)) ]" || fail "$1: it does not go on: $(tail -3 "$TMP/pair.log")"
}
refused() { # WHY ARGUMENT...
	local why=$1
	shift
	same "status of gleamctl $*" 1 "$(status_of "$OUT/bin/gleamctl" "$@")"
	grep -q -- "$why" "$TMP/status.out" || fail "$*: $(cat "$TMP/status.out")"
}
same "servers" "a b" "$(servers)"

# ---- which of them has to be said ----
refused "GPUs of several servers (a, b), which move one by one: say $pid:a" migrate "$pid" c
refused "has no GPU of server \`c\`, but of a, b" migrate "$pid:c" a
same "usage" 2 "$(status_of move "$pid:" c)"
same "usage" 2 "$(status_of move ":a" c)"
same "completion" "$pid:a $pid:b" "$("$OUT/bin/gleamctl" __complete migrate "$pid" | cut -f1 | sort | paste -sd' ')"

# ---- those of either, there and back, and together ----
for wish in "$pid:b c" "$pid:a b" "$pid:c b" "$pid:b a" "$pid:b c" "$pid:a b"; do
	# Work is under way nearly always: one move in some finds no end of it.
	for try in 1 2 3 4 5; do
		move $wish >"$TMP/move.out" 2>&1 && break
		[ $try -lt 5 ] || fail "$wish: $(cat "$TMP/move.out")"
		grep -q "did not come to an end" "$TMP/move.out" || fail "$wish: $(cat "$TMP/move.out")"
	done
	say "$wish: $(servers): $(tail -1 "$TMP/move.out")"
	goes_on "$wish"
done

# ---- by the tree: the names as they are read, one of them changed ----
if [ -n "$tree" ]; then
	file=$tree/clients/$pid/server
	now=$(cat "$file")
	for wrong in c "$now,c" "$now" nobody,c; do
		! echo "$wrong" 2>/dev/null >"$file" || fail "written: $wrong"
	done
	same "servers after wrong wishes" "$now" "$(cat "$file")"
	first=${now%,*}
	to=$(printf '%s\n' a b c | grep -v -x -e "$first" -e "${now#*,}" | head -1)
	for try in 1 2 3 4 5; do
		echo "$first,$to" >"$file" || fail "$first,$to: $(grep -h move: "$TMP/client.log" | tail -3)"
		wait_for 30 eval '! grep -q moving "$tree/clients/$pid/state"'
		are "$first" "$to" && break
		grep -q "did not come to an end" "$TMP/client.log" || break
	done
	same "servers by the tree" "$first $to" "$(servers)"
	goes_on "by the tree"
fi

# ---- a server is drained: what is there goes to the one where the program has nothing, and the rest stays ----
drained=$(servers | cut -d' ' -f2)
other=$(servers | cut -d' ' -f1)
for try in 1 2 3; do
	"$OUT/bin/gleamctl" drain "$drained" >"$TMP/drain.out" 2>&1 && break
	grep -q "did not come to an end" "$TMP/drain.out" || fail "drain: $(cat "$TMP/drain.out")"
done
grep -q "1 moved, 0 are there" "$TMP/drain.out" || fail "drain: $(cat "$TMP/drain.out")"
third=$(printf '%s\n' a b c | grep -v -e "$drained" -e "$other")
if [ "$drained" != "$other" ]; then
	same "servers after the drain" "$other $third" "$(servers)"
fi
goes_on "after the drain"

# ---- as if nothing had been ----
touch "$TMP/enough"
wait "$pid" || fail "$(grep -v ^turn "$TMP/pair.log" | tail -5)"
grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/pair.log" || fail "$(tail -3 "$TMP/pair.log")"
for n in client node_a node_b node_c; do
	stop_bg $n || fail "$n ended with status $?: $(tail -5 "$TMP/$n.log")"
	! grep -q -E 'Sanitizer|runtime error:|Assertion' "$TMP/$n.log" || fail "$n has complained: $(grep -A25 -E 'Sanitizer|runtime error:|Assertion' "$TMP/$n.log")"
done
