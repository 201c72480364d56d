#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# What a program was told of its images the next one knows: its loads wait for nobody, and neither do its functions. One of another user, on another
# driver, or that wants the compiler's words waits, and so does one after gleamd was restarted. What is broken is refused at once, always.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/loads bin/gleamctl
ctl=$OUT/bin/gleamctl
# Of the loads, but for that of the broken image, and of all that is done with functions.
waited() { awk '/^cu(ModuleLoad|LibraryLoad|ModuleGet|LibraryGet|KernelGet|FuncGet|Launch)/ { sum += $4 } END { print sum - 1 }' "$TMP/stats"; }
# What a program has left is known when its end has been heard.
heard() { "$ctl" status --json | json client_count | grep -qx 0; }
run() {
	GLEAM_STATS=$TMP/stats program loads "$@" >"$TMP/out" 2>&1 || fail "loads $*: $(cat "$TMP/out")"
	wait_for 20 heard || fail "its end isn't heard: $("$ctl" status)"
}
# Nothing is left there before gleamd knows what driver its server has.
driver_is() { "$ctl" servers --json | json servers.0.driver | grep "$1"; }
told() { wait_for 20 driver_is "$1" || fail "no driver $1: $(tail -5 "$TMP/client.log")"; }
waits() { [ "$(waited)" -ge "$least" ] || fail "$1: $(waited) round trips, not $least: $(cat "$TMP/stats")"; }
known() { "$ctl" status --json | json "verdicts.$1"; }
knows() { same "round trips of loads and functions, $1" 0 "$(waited)"; }

# So that it can be full soon.
export GLEAM_SOFTGPU_MEMORY=512M
soft_up --no-fuse
run first
told libsoftcuda
# 9 images, and 24 functions of one of them.
least=30
run a
waits "the first program"
before=$(known entries) hits=$(known hits) misses=$(known misses)
GLEAM_TRACE=$TMP/trace run a
knows "the second program"
same "images that it added" 0 "$(($(known entries) - before))"
same "images that were known" 9 "$(($(known hits) - hits))"
same "images that weren't" 1 "$(($(known misses) - misses))"
[ "$(known bytes)" -gt 1000 ] || fail "bytes: $(known bytes)"
"$ctl" status >"$TMP/status"
grep -q "^knows $before images" "$TMP/status" || fail "$(cat "$TMP/status")"
"$ctl" trace "$TMP/trace" --hops >"$TMP/hops"
# One load is there, of the broken image.
same "loads that waited" "cuModuleLoadData 1" "$(awk '/^cu(ModuleLoad|LibraryLoad)/ { print $1, $2 }' "$TMP/hops")"
GLEAM_OFF=verdicts run a
waits "GLEAM_OFF=verdicts"
# What a driver says that may not compile isn't what another one said; this one compiles all the same.
CUDA_DISABLE_PTX_JIT=1 run a
waits "CUDA_DISABLE_PTX_JIT"
run a
knows "still"
# Threads that load the same at once: each image is kept once, and the next process's threads find all of them.
before=$(known entries)
run threads 3 4
same "images that threads added" $((3 * 9)) "$(($(known entries) - before))"
hits=$(known hits)
run threads 3 4
[ $(($(known hits) - hits)) -ge $((3 * 9)) ] || fail "what threads added isn't found: $(known hits) hits after $hits"
# The broken one alone.
same "round trips of the loads of four threads" 0 "$(($(waited) + 1 - 3 * 4))"
# One that fails after all is told of by the next call that synchronises; what depends on it isn't done. The failure of one that waits is its own.
run a large
same "a large image" "load 0, sync 0, wrote 7" "$(cat "$TMP/out")"
run a full
same "a known image, without room" "load 0, sync 2, wrote 0" "$(cat "$TMP/out")"
GLEAM_OFF=verdicts run a full
same "an image that isn't known, without room" "load 2, sync 0, wrote 0" "$(cat "$TMP/out")"
# Each load that wants words asks, each time.
least=9
run a log
waits "with a log"
run a log
waits "with a log, again"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	least=30
	mkdir -m 777 "$TMP/his"
	mv "$TMP/stats" "$TMP/mine"
	for turn in 1 2; do
		GLEAM_STATS=$TMP/his/stats LD_LIBRARY_PATH=$OUT/lib HOME=/ timeout "$(slow 60)" setpriv --reuid=65534 --regid=65534 --clear-groups \
			"$OUT/tests/cuda/loads" a >"$TMP/out" 2>&1 || fail "another user's: $(cat "$TMP/out")"
		cp "$TMP/his/stats" "$TMP/stats"
		wait_for 20 heard
		[ $turn = 2 ] || waits "another user's program"
	done
	knows "the other user's second program"
fi

# ---- another driver; then the first one again ----
least=30
stop_bg node || fail "the node: $(tail -5 "$TMP/node.log")"
cp "$OUT/lib/libsoftcuda.so" "$TMP/libothercuda.so"
start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver "$TMP/libothercuda.so" --no-fuse
told libothercuda
run a
waits "another driver"
run a
knows "another driver"

# ---- gleamd is restarted: what it knew is gone; without room it learns nothing ----
stop_bg client || fail "gleamd: $(tail -5 "$TMP/client.log")"
client_start --no-fuse
run first
told libothercuda
run a
waits "after a restart"
run a
knows "after a restart"

# ---- gleamd is killed while a program loads, twice: its loads are right, and the next gleamd learns of them ----
LD_LIBRARY_PATH=$OUT/lib GLEAM_LOG=$TMP/loads.said start_bg loads "$OUT/tests/cuda/loads" b 100000
loads=$BG_PID
turns() { tail -n 1 "$TMP/loads.log" | awk '$1 == "turn" { n = $2 } END { print n + 0 }'; }
beyond() { [ "$(turns)" -gt "$1" ]; }
for kill in 1 2; do
	now=$(turns)
	wait_for 20 beyond $((now + 3)) || fail "no loads: $(cat "$TMP/loads.log")"
	stop_bg client KILL || true
	client_start --no-fuse
	back() { [ "$(grep -c 'gleamd is back' "$TMP/loads.said")" = $kill ]; }
	wait_for 20 back || fail "gleamd isn't back: $(cat "$TMP/loads.said")"
	now=$(turns)
	wait_for 20 beyond $((now + 1)) || fail "no loads any more: $(cat "$TMP/loads.log")"
	learns() { [ "$(known entries)" -gt 0 ]; }
	wait_for 20 learns || fail "it learns nothing"
done
kill "$loads"
grep -q wrong "$TMP/loads.log" && fail "$(grep wrong "$TMP/loads.log")"
grep -q "doesn't say what it knows" "$TMP/loads.said" && fail "$(cat "$TMP/loads.said")"
stop_bg client || fail "gleamd: $(tail -5 "$TMP/client.log")"
printf '[cache]\nverdicts = 0\n' >"$TMP/conf"
client_start --no-fuse --config "$TMP/conf"
for turn in 1 2 3; do
	run a
	waits "without room, $turn"
done
same "images without room" "0 0" "$(known entries) $(known hits)"
soft_down
