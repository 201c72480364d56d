#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Synchronous round trips of a step, as the library counts them, for the call patterns of well-known programs: from two runs
# of different length, so that what comes before the steps drops out.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

trips() { awk '{ sum += $4 } END { print sum + 0 }' "$1"; }

path_up
while read -r name most; do
	for steps in 4 14; do
		GLEAM_STATS=$TMP/stats.$steps cuda steps "$name" $steps >"$TMP/out" || fail "$name: $(cat "$TMP/out")"
	done
	tenths=$(($(trips "$TMP/stats.14") - $(trips "$TMP/stats.4")))
	say "$name: $((tenths / 10)).$((tenths % 10)) round trips a step"
	[ "$tenths" -le "$most" ] || fail "$name: $tenths round trips in 10 steps, not $most at most: $(
		join -o 0,1.4,2.4 <(sort "$TMP/stats.4") <(sort "$TMP/stats.14") | awk '$3 > $2')"
done <<EOF
token 11
token_jit 30
image 12
train 22
graph 11
EOF
path_down
