#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gleam-bench says how long it will take, measures each side, and keeps rows as they come; wrong usage is 2, a failure 1 with its
# cause, before anything is measured where that can be known.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

need_built bin/gleam-bench
bench=$OUT/bin/gleam-bench
sanitized && skip "a sanitizer's library can't be opened by a program that has none"
path_up
"$bench" --native "$OUT/lib/libsoftcuda.so" --gleam "$OUT/lib/libcuda.so.1" --off all --turns 2 --seconds 0.02 --max-size 64K \
	--json "$TMP/json" --svg "$TMP/svg" >"$TMP/out" || fail "$(cat "$TMP/out")"
head -1 "$TMP/out" | grep -qE '^about [0-9]+ s: 2[0-9] rows, 3 sides, 2 turns' || fail "the estimate: $(head -1 "$TMP/out")"
python3 - "$TMP/json" "$TMP/svg" <<'EOF' || fail "what it kept: $(cat "$TMP/out")"
import json, sys, xml.etree.ElementTree
kept = json.load(open(sys.argv[1]))
assert [side["name"] for side in kept["sides"]] == ["native", "Gleam", "off: all"], kept["sides"]
names = [row["row"] for row in kept["rows"]]
for name in ("launch", "launch_rate", "launch_sync", "graph_launch", "copy4_up", "copy4_down", "event_record", "event_query",
	     "first_alloc", "alloc_small", "module_load", "up", "down", "up_locked", "down_locked"):
	assert name in names, name
for row in kept["rows"]:
	for side in row["sides"]:
		first = next(iter(side.values()))
		assert len(first["turns"]) == 2 and first["median"] > 0, (row["row"], side)
by_name = {row["row"]: row["sides"] for row in kept["rows"]}
# Off, an asynchronous launch waits for an answer; on, it does not.
assert by_name["launch"][2]["us"]["median"] > 5 * by_name["launch"][1]["us"]["median"], by_name["launch"]
xml.etree.ElementTree.parse(sys.argv[2])
EOF
"$bench" --gleam "$OUT/lib/libcuda.so.1" --only '^context_get$' --turns 1 --seconds 0.01 >"$TMP/out" || fail "Gleam alone: $(cat "$TMP/out")"
grep -q '^context_get' "$TMP/out" || fail "$(cat "$TMP/out")"

for wrong in "--fly" "--turns 0" "--turns x" "--seconds -1" "--max-size 1" "--off fly" "--only (" "--only ^nothing$" "--no-gleam" word; do
	# shellcheck disable=SC2086 # an option and its value
	same "status of $wrong" 2 "$(status_of "$bench" $wrong)"
done
same "status without the library" 1 "$(status_of "$bench" --native "$TMP/none.so" --only context_get)"
grep -q none.so "$TMP/status.out" || fail "the cause: $(cat "$TMP/status.out")"
same "status of what is no driver" 1 "$(status_of "$bench" --no-gleam --native libc.so.6 --only context_get)"
same "status of a file that can't be written" 1 "$(status_of "$bench" --gleam "$OUT/lib/libcuda.so.1" --json "$TMP/no/such" --only context_get)"
same "status without a daemon" 1 "$(GLEAM_SOCKET=$TMP/nobody status_of "$bench" --gleam "$OUT/lib/libcuda.so.1" --only context_get)"
grep -q CUDA_ERROR_NO_DEVICE "$TMP/status.out" || fail "the cause: $(cat "$TMP/status.out")"
"$bench" --list | grep -q '^module_load ' || fail "the list"
equal() { diff -u --label help --label page <(printf '%s\n' "$1") <(printf '%s\n' "$2") || fail "help and man page differ"; }
equal "$("$bench" --help | grep -oE -- '^  --[a-z-]+' | tr -d ' ' | sort)" \
	"$(sed 's/\\-/-/g' "$TOP/docs/man/gleam-bench.1" | grep -oE '^\.BI? --[a-z-]+' | sed 's/^\.BI\? //' | sort -u)"
path_down
