#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Round trip time and bandwidth in /gleam are those of the network: 20 ms and 100 Mbit/s here, by lanem.
# time-limit: 150
# serial
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_root "(network namespaces, a tree that all may see)"
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
tree_or_skip
need_built tests/lab/lanem bin/gleamctl
lanem=$OUT/tests/lab/lanem
"$OUT/bin/gleamctl" key new "$TMP/key" >/dev/null
start_bg lab "$lanem" up --name "tree$$" --rtt 20 --rate 100mbit
wait_for 10 grep -qx ready "$TMP/lab.log" || skip "no lab here: $(tail -n 1 "$TMP/lab.log")"
start_bg node "$lanem" exec B --name "tree$$" -- "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen 198.18.0.2:4711 \
	--driver softgpu --no-fuse --key "$TMP/key"
wait_for 20 log_has node "is ready" || fail "$(cat "$TMP/node.log")"
start_bg client "$lanem" exec A --name "tree$$" -- "$OUT/bin/gleamd" --socket "$TMP/client.sock" --mount "$TMP/gleam" \
	--server lab=198.18.0.2:4711 --key "$TMP/key"
wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
s=$TMP/gleam/servers/lab
measured() { [ "$(cat "$s/rtt")" != - ]; }
wait_for 20 measured || fail "no round trip time"
between "round trip (ms)" 19 "$(cat "$s/rtt")" 80
same "bandwidth before there was anything to send" - "$(cat "$s/bandwidth")"
# 20 MB: 1.6 s; where others have the cores the lab itself is slower at times.
told() {
	program vecadd 2500000 1 || fail "vecadd"
	(between "bandwidth (Mbit/s)" 60 "$(cat "$s/bandwidth")" 115)
}
wait_for 60 told || fail "bandwidth (Mbit/s): $(cat "$s/bandwidth")"
"$OUT/bin/gleamctl" servers --json | json servers.0.bandwidth >/dev/null
soft_down
stop_bg lab || true
