#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bulk bytes arrive whole, both ways, over two TLS lanes, and over sixteen; commands use the first connection alone.
# time-limit: 180
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

key_make "$TMP/key"
for lanes in 2 16; do
	PORT=
	node_up node --key "$TMP/key"
	broker_up broker --key "$TMP/key" --lanes "$lanes"
	# More than the arena, so that it goes round.
	client broker up 150000000
	client broker down 60000000
	client broker up 1
	client broker down 1
	if command -v ss >/dev/null; then
		same connections $((lanes + 1)) "$(ss -Htn "dport = :$PORT" | wc -l)"
	fi
	daemons_down broker node
done
