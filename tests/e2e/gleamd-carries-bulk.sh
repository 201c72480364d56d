#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bulk bytes arrive whole, both ways: encrypted over the usual number of lanes and over sixteen, in the clear over one and four;
# commands use the first connection alone.
# time-limit: 180
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

key_make "$TMP/key"
for how in 4:key 16:key 1:clear 4:clear; do
	lanes=${how%:*} key=()
	[ "$how" = "$lanes:clear" ] || key=(--key "$TMP/key")
	PORT=
	node_up node "${key[@]}"
	broker_up broker "${key[@]}" --lanes "$lanes"
	# More than the arena, so that it goes round.
	client broker up 80000000
	client broker down 40000000
	client broker up 1
	client broker down 1
	if command -v ss >/dev/null; then
		same connections $((lanes + 1)) "$(ss -Htn "dport = :$PORT" | wc -l)"
	fi
	daemons_down broker node
done
