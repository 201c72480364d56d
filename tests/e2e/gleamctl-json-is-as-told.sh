#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What --json prints is what docs/json/gleamctl.schema.json says, for every command that has it.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built bin/gleamctl
ctl=$OUT/bin/gleamctl
schema=$TOP/docs/json/gleamctl.schema.json
# told NAME COMMAND...: its JSON is as the definition NAME says.
told() {
	local name=$1
	shift
	"$ctl" "$@" --json >"$TMP/$name.json" || [ "$name" = doctor ] || fail "gleamctl $*: status $?"
	python3 "$TOP/tests/lib/schema.py" "$schema" "$name" "$TMP/$name.json" || fail "gleamctl $* --json: $(cat "$TMP/$name.json")"
}
soft_up --no-fuse --server "attic=127.0.0.1:$(free_port)"
LD_LIBRARY_PATH=$OUT/lib start_bg held "$OUT/tests/cuda/vecadd" 1000 100 500
wait_for 20 eval '"$ctl" stats "$(bg_pid held)" | grep -q cuLaunchKernel'
told status status
told servers servers
told clients clients
told stats stats "$(bg_pid held)"
told version version
told doctor doctor
told policy policy
told decisions decisions
told cache cache
told drain drain attic
told drain drain attic --undo
told key_new key new "$TMP/key"
told key_show key show "$TMP/key"
"$ctl" status --json --socket "$TMP/node.sock" >"$TMP/node.json"
python3 "$TOP/tests/lib/schema.py" "$schema" status "$TMP/node.json" || fail "$(cat "$TMP/node.json")"
same "the node is told" "softgpu" "$(json node.driver <"$TMP/node.json" | grep -o softcuda | sed 's/cuda/gpu/')"
# The checker is one.
echo '{"gleamctl": 7}' >"$TMP/bad.json"
same "wrong JSON" 1 "$(status_of python3 "$TOP/tests/lib/schema.py" "$schema" version "$TMP/bad.json")"
grep -q 'gleamd is missing' "$TMP/status.out" && grep -q "7 is not string" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
# Every command that takes --json has a definition, and the other way round.
commands=$("$ctl" --help | sed -nE 's/^  ([a-z]+)  .*/\1/p' | while read -r command; do
	if "$ctl" "$command" --help | grep -q -- --json; then echo "$command"; fi; done | sort)
defined=$(python3 -c 'import json, sys
print("\n".join(sorted(name for name in json.load(open(sys.argv[1]))["$defs"])))' "$schema")
for command in $commands; do
	grep -qE "^$command(_|$)" <<<"$defined" || say "no definition for gleamctl $command --json"
done
stop_bg held KILL || true
soft_down
