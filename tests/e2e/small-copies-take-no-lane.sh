#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 60
# Copies of up to 32 KiB to the host come by the connection of commands, pageable and page-locked, and bring the right bytes; only larger
# ones need the bulk lanes.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_cmd ss
need_built tests/cuda/bandwidth bin/gleamctl
"$OUT/bin/gleamctl" key new "$TMP/key" >/dev/null
PORT=$(free_port)
start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver softgpu --no-fuse --key "$TMP/key"
wait_for 20 log_has node "is ready" || fail "the node does not start: $(cat "$TMP/node.log")"
client_start --no-fuse --key "$TMP/key" --lanes 4

# Bytes that each of the broker's connections has received, by its port.
received() {
	ss -Htino "dport = :$PORT" | awk -v RS= '{ print }' | tr '\n' ' ' | sed 's/ESTAB/\n&/g' |
		sed -n 's/.*:\([0-9]*\) *127.0.0.1:'"$PORT"' .*bytes_received:\([0-9]*\).*/\1 \2/p' | sort
}
# Those that have received more than @2 bytes since @1 was told.
grown() { join <(printf '%s\n' "$1") <(received) | awk -v least="$2" '$3 - $2 > least { print $1 }'; }

# The link is opened by the first program.
program vecadd >"$TMP/out" || fail "vecadd: $(tail -5 "$TMP/out")"
wait_for 20 eval '[ "$(received | wc -l)" = 5 ]' || fail "not five connections: $(ss -tino "dport = :$PORT")"
before=$(received)
program bandwidth 4 32 20 down down-locked >"$TMP/out" || fail "small copies: $(tail -5 "$TMP/out")"
# 4 and 32 KiB, both kinds, 20 times and one more to check.
commands=$(grown "$before" 1000000)
[[ $commands =~ ^[0-9]+$ ]] || fail "the bytes did not come by one connection: $before; $(received)"
[ "$(grown "$before" 0)" = "$commands" ] || fail "a lane has received some: $before; $(received)"
before=$(received)
program bandwidth 256 256 20 down down-locked >"$TMP/out" || fail "larger copies: $(tail -5 "$TMP/out")"
grown "$before" 1000000 | grep -qvx "$commands" || fail "the lanes have received nothing: $before; $(received)"
soft_down
