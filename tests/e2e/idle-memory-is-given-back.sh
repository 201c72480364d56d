#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# What a program has freed stays with it for its next allocation, up to 512 MiB. Another program on that GPU gets it all the same: it is
# asked for when memory is short. A program that can't answer holds nobody up for long, and where nobody has any the answer comes at once.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/hoard
: >"$TMP/ledger"
chmod 666 "$TMP/ledger"
export GLEAM_SOFTGPU_MEMORY=1536M GLEAM_SOFTGPU_LEDGER=$TMP/ledger
OUT_OF_MEMORY=2
soft_up

keeper() { # NAME MIB: lives until descriptor 9 is closed
	start_bg "$1" env LD_LIBRARY_PATH="$OUT/lib" sh -c "exec '$OUT/tests/cuda/hoard' keep $2 <'$TMP/go' 9>&-"
}
took() { sed -n 's/^took //p' "$TMP/take.out"; }
take() { program hoard take "$@" >"$TMP/take.out" 2>&1 || fail "take $*: $(cat "$TMP/take.out")"; }

# at_once WHAT: 1600 MiB are refused without waiting for anybody; the best of three tries, since the machine may be busy
at_once() {
	local least=9999
	for _ in 1 2 3; do
		take 1600 $OUT_OF_MEMORY
		[ "$(took)" -ge "$least" ] || least=$(took)
	done
	between "$1 (ms)" 0 "$least" 250
}
at_once "refused when nobody else is there"

mkfifo "$TMP/go"
for name in one two; do
	keeper $name 480
	[ -n "${go_open:-}" ] || exec 9>"$TMP/go"
	go_open=1
	wait_for 30 grep -q ready "$TMP/$name.log" || fail "$name: $(cat "$TMP/$name.log")"
done

# 576 MiB are free, and 960 more idle with the two.
take 1000
say "1000 MiB with 576 free: given after $(took) ms"
# They have given what they had: nothing is left to wait for.
at_once "refused when nobody has any"

# A new program's context wants memory before it can ask for any: what others keep is given back when it comes.
left() { "$OUT/bin/gleamctl" servers --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["servers"][0]["gpus"][0]["memory_free"] >> 20)'; }
more() { [ "$(left)" -ge "$1" ]; }
less() { [ "$(left)" -lt "$1" ]; }
# What is known of the GPU is up to a second old: the next one comes when it is true.
wait_for 10 more 1400 || fail "$(left) MiB are free, of 1536 of which nobody has any"
for name in four five; do
	[ $name = four ] || wait_for 10 less 1100 || fail "$(left) MiB are free while one program keeps 480, of 1536"
	keeper $name 480
	wait_for 30 grep -q ready "$TMP/$name.log" || fail "$name: $(cat "$TMP/$name.log")"
done
wait_for 10 less 700 || fail "$(left) MiB are free while two programs keep 480 each, of 1536"
program vecadd >"$TMP/vecadd.out" 2>&1 || fail "vecadd: $(cat "$TMP/vecadd.out")"
wait_for 10 more 1000 || fail "$(left) MiB are free after another program came, of 1536 of which nobody uses any"

# One that is stopped can't answer: the others' answer is enough, or the refusal comes soon.
keeper three 480
wait_for 30 grep -q ready "$TMP/three.log" || fail "three: $(cat "$TMP/three.log")"
kill -STOP "$(bg_pid three)"
take 1200 $OUT_OF_MEMORY
say "1200 MiB while the one who has them is stopped: refused after $(took) ms"
between "refused after (ms)" 250 "$(took)" 5000
kill -CONT "$(bg_pid three)"
take 1200

exec 9>&-
for name in one two three four five; do
	wait "$(bg_pid $name)" || fail "$name: $(cat "$TMP/$name.log")"
done
soft_down
