#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 200
# A program with GPUs of two servers: those of either move to a third one and back, or together to one, while copies, events and page-locked
# memory go between them; a drain of one server moves what is there; which is to go has to be said, in gleamctl and in /gleam.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"
. "$(dirname "$0")/../lib/servers.sh"

tree=
if [ -e /dev/fuse ] && [ "$(id -u)" = 0 ] && "$OUT/bin/gleamd" --help | grep -q -- --mount; then
	tree=$TMP/gleam
	mkdir "$tree"
fi
# shellcheck disable=SC2046
servers_up ${tree:+--mount "$tree"} $([ -n "$tree" ] || echo --no-fuse)
# Where a sanitizer makes it slow a turn of the whole takes a minute.
if [ "$E2E_SLOW" -gt 1 ]; then pair_start small; else pair_start; fi
same "servers" "a b" "$(servers)"

# ---- which of them has to be said ----
refused "GPUs of several servers (a, b), which move one by one: say $pid:a" migrate "$pid" c
refused "has no GPU of server \`c\`, but of a, b" migrate "$pid:c" a
same "usage" 2 "$(status_of ctl migrate "$pid:" c)"
same "usage" 2 "$(status_of ctl migrate ":a" c)"
same "completion" "$pid:a $pid:b" "$("$OUT/bin/gleamctl" __complete migrate "$pid" | cut -f1 | sort | paste -sd' ')"

# ---- those of either, there and back, and together ----
for wish in "$pid:b c" "$pid:a b" "$pid:c b" "$pid:b a" "$pid:b c" "$pid:a b"; do
	# Work is under way nearly always: one move in some finds no end of it.
	for try in 1 2 3 4 5; do
		ctl migrate $wish >"$TMP/move.out" 2>&1 && break
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
	ctl drain "$drained" >"$TMP/drain.out" 2>&1 && break
	grep -q "did not come to an end" "$TMP/drain.out" || fail "drain: $(cat "$TMP/drain.out")"
done
grep -q "1 moved, 0 are there" "$TMP/drain.out" || fail "drain: $(cat "$TMP/drain.out")"
third=$(printf '%s\n' a b c | grep -v -e "$drained" -e "$other")
if [ "$drained" != "$other" ]; then
	same "servers after the drain" "$other $third" "$(servers)"
fi
goes_on "after the drain"

# ---- as if nothing had been ----
pair_right
for n in client node_a node_b node_c; do
	stop_bg $n || fail "$n ended with status $?: $(tail -5 "$TMP/$n.log")"
	! grep -q -E 'Sanitizer|runtime error:|Assertion' "$TMP/$n.log" || fail "$n has complained: $(grep -A25 -E 'Sanitizer|runtime error:|Assertion' "$TMP/$n.log")"
done
