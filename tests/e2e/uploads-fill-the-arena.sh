#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a program uploads is taken as long as there is room for it, whoever stands still behind: all of 64 MiB, also after something small has
# gone before, which had left room for a single piece of a MiB. From page-locked memory as well, and a wait behind a copy needs no answer.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

path_up
# FILE LINE
said() { grep -q "$2" "$TMP/$1"; }
for kind in async sync locked; do
	start_bg again env LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/again" 20 3 1 0 $kind "$TMP/go"
	wait_for 20 said again.log begun || fail "$kind: it doesn't begin: $(cat "$TMP/again.log")"
	kill -STOP "$(bg_pid node)"
	touch "$TMP/go"
	wait_for 10 said again.log taken || { kill -CONT "$(bg_pid node)"; fail "$kind: 60 MiB are not taken while the node stands still"; }
	! said again.log landed || fail "$kind: 60 MiB have landed at a node that stands still"
	kill -CONT "$(bg_pid node)"
	wait_for 20 said again.log "1 passed, 0 failed" || fail "$kind: $(cat "$TMP/again.log")"
	stop_bg again || true
	rm "$TMP/go"
done
path_down
