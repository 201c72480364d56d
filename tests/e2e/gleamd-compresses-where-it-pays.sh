#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a link of 100 Mbit/s bytes that shrink get there sooner than the link could carry them, both ways, and are right; not where one
# of the two daemons has it off. (That fast links don't compress: tests/unit/test_pack.c.)
# time-limit: 120
# serial
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

need_root "(network namespaces)"
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
need_built tests/lab/lanem bin/gleamctl
lanem=$OUT/tests/lab/lanem
key_make "$TMP/key"
start_bg lab "$lanem" up --name "lz$$" --rtt 1 --rate 100mbit
wait_for 10 grep -qx ready "$TMP/lab.log" || skip "no lab here: $(tail -n 1 "$TMP/lab.log")"

# Bytes that the node has already don't travel either: not what is looked at here.
printf '[cache]\nuse = off\n' >"$TMP/conf"

# lan NODE-SETTING BROKER-SETTING
lan() {
	start_bg node "$lanem" exec B --name "lz$$" -- "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen 198.18.0.2:4711 --driver \
		"$DRIVER" --worker "$OUT/tests/fake/fake-worker" --no-fuse --key "$TMP/key" --compress "$1" --config "$TMP/conf"
	wait_for 10 log_has node "is ready" || fail "$(cat "$TMP/node.log")"
	start_bg broker "$lanem" exec A --name "lz$$" -- "$OUT/bin/gleamd" --socket "$TMP/broker.sock" --server gpu=198.18.0.2:4711 \
		--no-fuse --key "$TMP/key" --lanes 2 --compress "$2" --config "$TMP/conf"
	wait_for 10 log_has broker "is ready" || fail "$(cat "$TMP/broker.log")"
}
server() { "$OUT/bin/gleamctl" servers --json --socket "$TMP/broker.sock" | json "servers.0.$1"; }

lan auto auto
client broker flood 20000000 >/dev/null # the link is measured by it
client broker flood 30000000 | tee "$TMP/rate"
rate=$(cut -d' ' -f1 "$TMP/rate")
[ "$rate" -ge 20 ] || fail "$rate MB/s of zeros by 100 Mbit/s"
[ "$(server saved)" -ge 20000000 ] || fail "saved $(server saved) bytes"
[ "$(server sent)" -le 30000000 ] || fail "sent $(server sent) bytes"
# Half of the pieces shrink; sums are compared.
client broker up 6000000
received=$(server received)
client broker down 12000000
[ $(($(server received) - received)) -le 11000000 ] || fail "downwards: $(($(server received) - received)) bytes of 12,000,000 came"
daemons_down broker node

for off in "off auto" "auto off"; do
	# shellcheck disable=SC2086
	lan $off
	client broker flood 4000000 >/dev/null
	client broker flood 6000000 | tee "$TMP/rate"
	[ "$(cut -d' ' -f1 "$TMP/rate")" -le 14 ] || fail "$off: faster than the link"
	same "$off: saved" 0 "$(server saved)"
	daemons_down broker node
done
stop_bg lab || true
