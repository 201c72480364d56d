#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 1800
# Programs whose link is reset or silent at any point come to the right result and don't notice, also those of other programs' random
# calls. After the time of grace every call fails, within a second. GLEAM_LONG=1: a hundred points, and times of
# 1, 5 and 15 s.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built tests/fault/gleam-chaos tests/cuda/checksum

# The broker's way leads through a proxy that makes trouble.
chaos=$TMP/chaos.sock
PORT=$(free_port)
start_bg chaos "$OUT/tests/fault/gleam-chaos" --listen 127.0.0.1:0 --target "127.0.0.1:$PORT" --control "$chaos"
wait_for 5 grep -q listening "$TMP/chaos.log"
trouble() { "$OUT/tests/fault/gleam-chaos" ctl "$chaos" "$@" >/dev/null; }
PROXY=$(sed -n 's/^listening //p' "$TMP/chaos.log")
grace=$(slow 4)
[ -z "${GLEAM_LONG:-}" ] || grace=$(slow 20)
path_up --keepalive 2 --grace $grace -- --server "gpu=127.0.0.1:$PROXY" --keepalive 1.5 --grace $grace
went_on() { grep -c 'goes on after' "$TMP/broker.log" || true; }

# Two programs at once, until the file is there.
names=(first second)
run() {
	local i
	rm -f "$TMP/enough"
	for i in 0 1; do
		start_bg "${names[i]}" env LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/checksum" 50 $(($1 * 10 + i)) 0 "$TMP/enough"
		wait_for 20 grep -q step "$TMP/${names[i]}.log" || fail "does not start: $(cat "$TMP/${names[i]}.log")"
	done
}
right() {
	local name
	touch "$TMP/enough"
	for name in "${names[@]}"; do
		wait "$(bg_pid "$name")" || fail "$1: $name: $(grep -v '^step' "$TMP/$name.log" | tail -5)"
		grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$name.log" || fail "$1: $(tail -3 "$TMP/$name.log")"
	done
}

# ---- resets at any point, some with a time without a link behind them ----
RANDOM=11
points=12
[ -z "${GLEAM_LONG:-}" ] || points=100
run 1
for ((i = 0; i < points; i++)); do
	pause "0.$((RANDOM % 3))$((RANDOM % 10))$((RANDOM % 10))"
	if [ $((i % 4)) = 3 ]; then
		trouble refuse
		trouble cut
		pause "0.$((RANDOM % 8))"
		trouble accept
	else
		trouble cut
	fi
done
right "$points resets"
say "$points resets, sessions went on $(went_on) times"
[ "$(went_on)" -ge $((points / 2)) ] || fail "the links were not lost"

# ---- silence: nobody closes anything ----
seconds=(1.8)
[ -z "${GLEAM_LONG:-}" ] || seconds=(1 5 15)
for s in "${seconds[@]}"; do
	run 2
	trouble silent
	sleep "$s"
	trouble flow
	right "silence of $s s"
done

# ---- a link that is cut, and not there for a time, at a hundred points (a hundred times 7 s) ----
if [ -n "${GLEAM_LONG:-}" ]; then
	run 3
	before=$(went_on)
	for ((i = 0; i < 100; i++)); do
		sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
		trouble refuse
		trouble cut
		sleep "${seconds[i % 3]}"
		trouble accept
		# It is there again, and both have gone on, before it goes once more.
		wait_for 15 eval '[ "$(went_on)" -ge $((before + 2)) ]' || fail "cut $i, ${seconds[i % 3]} s: the sessions don't go on"
		before=$(went_on)
	done
	right "cuts of 1, 5 and 15 s at 100 points"
	say "cut for 1, 5 and 15 s at 100 points: right results without a restart"
fi

# ---- random programs of the API while links are lost ----
mkdir "$TMP/direct"
ln -s "$OUT/lib/libsoftcuda.so" "$TMP/direct/libcuda.so.1"
start_bg differ python3 "$TOP/tests/cuda/differ.py" --differ "$OUT/tests/cuda/differ" --direct "$TMP/direct" --gleam "$OUT/lib" \
	--seeds 5000:400 --seconds "${GLEAM_LONG:+6}8"
before=$(went_on)
while alive "$(bg_pid differ)"; do
	pause "0.$((RANDOM % 5 + 2))"
	trouble cut
done
wait "$(bg_pid differ)" || fail "random programs: $(tail -20 "$TMP/differ.log")"
say "random programs: $(tail -1 "$TMP/differ.log"), sessions went on $(($(went_on) - before)) times"

# ---- longer than the time of grace ----
run 3
trouble refuse
trouble cut
start=$(now_ns)
for name in "${names[@]}"; do
	if wait "$(bg_pid "$name")"; then fail "$name goes on without a server"; fi
	ms=$((($(now_ns) - start) / 1000000))
	grep -q CUDA_ERROR_DEVICE_UNAVAILABLE "$TMP/$name.log" || fail "$name: $(grep -v '^step' "$TMP/$name.log" | tail -3)"
	between "$name's end (ms)" $((grace * 1000 - 100)) "$ms" $(((grace + $(slow 1)) * 1000))
done
say "ended $ms ms after the link, grace $grace s"
grep -q "it did not come back within" "$TMP/broker.log" || fail "the log does not say why: $(tail -3 "$TMP/broker.log")"
trouble accept
path_down
