#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# A program with GPUs of two servers: which it gets, and in which order (field case P-012); copies, events and page-locked memory
# between them; what /gleam and gleamctl say; one of the servers lost.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/devices tests/cuda/apart tests/cuda/peers bin/gleamctl
export GLEAM_SOFTGPU_DEVICES=2
declare -A PORTS
for n in a b; do
	PORTS[$n]=$(free_port)
	GLEAM_SOFTGPU_SEED=$n start_bg "node_$n" "$OUT/bin/gleamd" --socket "$TMP/$n.sock" --listen "127.0.0.1:${PORTS[$n]}" \
		--driver softgpu --no-fuse
	wait_for 20 log_has "node_$n" "is ready" || fail "server $n does not start: $(cat "$TMP/node_$n.log")"
done
tree=
if [ -e /dev/fuse ] && [ "$(id -u)" = 0 ] && "$OUT/bin/gleamd" --help | grep -q -- --mount; then
	tree=$TMP/gleam
	mkdir "$tree"
fi
start_bg client "$OUT/bin/gleamd" --socket "$TMP/client.sock" --server "a=127.0.0.1:${PORTS[a]}" --server "b=127.0.0.1:${PORTS[b]}" \
	${tree:+--mount "$tree"} $([ -n "$tree" ] || echo --no-fuse)
wait_for 20 log_has client "is ready" || fail "the client daemon does not start: $(cat "$TMP/client.log")"
known() { [ "$("$OUT/bin/gleamctl" servers --json | python3 -c 'import json, sys
print(sum(len(s.get("gpus", [])) for s in json.load(sys.stdin)["servers"]))')" = 4 ]; }
wait_for 20 known || fail "the servers' GPUs are not known: $("$OUT/bin/gleamctl" servers --json)"

uuids() { program devices 2>"$TMP/devices.err" | grep ^GPU- || fail "no devices: $(cat "$TMP/devices.err")"; }
sees() { program devices "$@" >"$TMP/devices.out" 2>&1 || fail "$* expected: $(cat "$TMP/devices.out")"; }
mapfile -t a < <(GLEAM_SERVER=a GLEAM_GPUS=all uuids)
mapfile -t b < <(GLEAM_SERVER=b GLEAM_GPUS=all uuids)
same "GPUs of a" 2 "${#a[@]}"
same "GPUs of b" 2 "${#b[@]}"
[ -z "$(printf '%s\n' "${a[@]}" "${b[@]}" | sort | uniq -d)" ] || fail "two GPUs have one UUID: ${a[*]} ${b[*]}"

# As many as are asked for: of one server while one has them, then of both.
same "GPUs by default" 1 "$(uuids | wc -l)"
export GLEAM_GPUS=2
mapfile -t two < <(uuids)
[ "${two[*]}" = "${a[*]}" ] || [ "${two[*]}" = "${b[*]}" ] || fail "two GPUs that one server has: ${two[*]}"
export GLEAM_GPUS=3
same "GPUs when three are asked for" 3 "$(uuids | sort -u | wc -l)"
export GLEAM_GPUS=all
same "all GPUs" 4 "$(uuids | sort -u | wc -l)"
same "all GPUs by gleamctl run" 4 "$("$OUT/bin/gleamctl" run --gpus all -- "$OUT/tests/cuda/devices" | grep -c ^GPU-)"
same "GPUs of two servers by gleamctl run" 2 "$(env -u GLEAM_GPUS "$OUT/bin/gleamctl" run --server b,a -- "$OUT/tests/cuda/devices" | grep -c ^GPU-)"
export GLEAM_GPUS=5
GLEAM_LOG=1 program devices >"$TMP/devices.out" 2>&1 && fail "five of four GPUs"
grep -q "GLEAM_GPUS=5: the servers have 4" "$TMP/devices.out" || fail "no reason: $(cat "$TMP/devices.out")"
GLEAM_LOG=1 GLEAM_SERVER=a,nobody program devices >"$TMP/devices.out" 2>&1 && fail "a server that isn't there"
grep -q "GLEAM_SERVER=nobody" "$TMP/devices.out" || fail "no reason: $(cat "$TMP/devices.out")"

# The servers' own order, and CUDA_VISIBLE_DEVICES over all of them.
export GLEAM_SERVER=b,a
unset GLEAM_GPUS
same "one GPU of each" 2 "$(uuids | wc -l)"
export GLEAM_GPUS=3
sees "${b[@]}" "${a[0]:0:8}"
export GLEAM_GPUS=all
sees "${b[@]}" "${a[@]}"
CUDA_VISIBLE_DEVICES=3,0 sees "${a[1]}" "${b[0]}"
CUDA_VISIBLE_DEVICES=2 sees "${a[0]}"
CUDA_VISIBLE_DEVICES=1,9,0 sees "${b[1]}"
CUDA_VISIBLE_DEVICES="${a[0]},${b[1]:0:12}" sees "${a[0]}" "${b[1]}"
GLEAM_GPUS=1 CUDA_VISIBLE_DEVICES=2,0 sees "${a[0]}"
CUDA_VISIBLE_DEVICES= program devices >"$TMP/devices.out" 2>&1 && fail "all are hidden"
unset GLEAM_SERVER

# What passes between them; programs of one GPU with two.
program apart >"$TMP/apart.out" 2>&1 || fail "apart: $(grep -v ' s$' "$TMP/apart.out" | tail)"
say "apart: $(tail -1 "$TMP/apart.out")"
GLEAM_SERVER=a,b GLEAM_GPUS= program peers >"$TMP/peers.out" 2>&1 || fail "peers: $(tail "$TMP/peers.out")"
grep -q "by copies alone" "$TMP/peers.out" || fail "two servers' GPUs are peers"
for name in copies streams pinned; do
	program "$name" >"$TMP/$name.out" 2>&1 || fail "$name: $(tail "$TMP/$name.out")"
done

# One of the two is lost.
export GLEAM_SERVER=a,b
unset GLEAM_GPUS
LD_LIBRARY_PATH=$OUT/lib start_bg lost "$OUT/tests/cuda/apart" lost "$TMP/gone"
wait_for 20 log_has lost waiting || fail "$(cat "$TMP/lost.log")"
pid=$(bg_pid lost)
same "sessions of the program" "a b" "$("$OUT/bin/gleamctl" clients --json | python3 -c 'import json, sys
print(*sorted(c["server"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])))' "$pid")"
if [ -n "$tree" ]; then
	same "servers of the program in the tree" "a,b" "$(cat "$tree/clients/$pid/server")"
fi
"$OUT/bin/gleamctl" migrate "$pid" b >"$TMP/migrate.out" 2>&1 && fail "it was moved"
grep -q "GPUs of several servers" "$TMP/migrate.out" || fail "migrate: $(cat "$TMP/migrate.out")"
kill -KILL "$(bg_pid node_b)"
touch "$TMP/gone"
wait_for 60 log_has lost passed || fail "the program doesn't end: $(cat "$TMP/lost.log")"
tail -1 "$TMP/lost.log" | grep -q ", 0 failed" || fail "with a server lost: $(cat "$TMP/lost.log")"
say "one server lost: $(tail -1 "$TMP/lost.log")"
for n in client node_a; do
	stop_bg $n || fail "$n ended with status $?: $(tail -5 "$TMP/$n.log")"
	! grep -q -E 'Sanitizer|runtime error:|Assertion' "$TMP/$n.log" || fail "$n has complained: $(grep -A25 -E 'Sanitizer|runtime error:|Assertion' "$TMP/$n.log")"
done
