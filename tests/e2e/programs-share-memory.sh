#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# Programs of one server and tenant map each other's memory by CUDA's own handles (field case P-019). For those of another tenant,
# and after its maker's end, a handle leads nowhere: an error, and the program goes on.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

need_built bin/gleamctl tests/cuda/shares
for tenant in one two; do
	"$OUT/bin/gleamctl" key new --tenant "$tenant" "$TMP/$tenant.key" >/dev/null
done
cat "$TMP/one.key" "$TMP/two.key" >"$TMP/keys"
chmod 600 "$TMP/keys"
# Two GPUs: a program gets one, so two of them are on both unless they say otherwise.
export GLEAM_SOFTGPU_DEVICES=2
port=$(free_port)
start_bg node "$OUT/bin/gleamd" --no-fuse --socket "$TMP/node.sock" --listen "127.0.0.1:$port" --driver softgpu --key "$TMP/keys"
wait_for 20 grep -q 'is ready' "$TMP/node.log"
for tenant in one two; do
	start_bg "$tenant" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$tenant.sock" --server "gpu=127.0.0.1:$port" --key "$TMP/$tenant.key"
	wait_for 20 grep -q 'is ready' "$TMP/$tenant.log"
done

export GLEAM_SOCKET=$TMP/one.sock
cuda shares >"$TMP/shares.out" 2>&1 || fail "two GPUs: $(tail "$TMP/shares.out")"
say "two GPUs: $(tail -1 "$TMP/shares.out")"
export CUDA_VISIBLE_DEVICES=0
cuda shares >"$TMP/shares.out" 2>&1 || fail "one GPU: $(tail "$TMP/shares.out")"
say "one GPU: $(tail -1 "$TMP/shares.out")"

LD_LIBRARY_PATH=$OUT/lib start_bg holder "$OUT/tests/cuda/shares" other "$TMP/token"
wait_for 20 grep -q "token written" "$TMP/holder.log"
nowhere() {
	GLEAM_LOG=1 cuda shares foreign "$TMP/token" >"$TMP/foreign.out" 2>&1 || fail "$1: $(tail "$TMP/foreign.out")"
	grep -q "its program has ended or freed it, or is of another server or tenant" "$TMP/foreign.out" ||
		fail "$1: the log does not say why: $(cat "$TMP/foreign.out")"
}
GLEAM_SOCKET=$TMP/two.sock nowhere "another tenant"
# The same token is good for its own tenant.
cuda shares foreign "$TMP/token" >"$TMP/foreign.out" 2>&1 && fail "its own tenant can't open it"
grep -q "gave 0" "$TMP/foreign.out" || fail "its own tenant: $(cat "$TMP/foreign.out")"
# Neither of the two moves; the reason names the other one, as far as its memory is open there.
stays() { # PID WHY
	same "status of a move" 1 "$(status_of "$OUT/bin/gleamctl" migrate "$1" gpu)"
	grep -q -- "$2" "$TMP/status.out" || fail "migrate $1: $(cat "$TMP/status.out")"
}
LD_LIBRARY_PATH=$OUT/lib start_bg opener "$OUT/tests/cuda/shares" open "$TMP/token" "$TMP/close" "$TMP/end"
wait_for 20 grep -q "opened" "$TMP/opener.log" || fail "opener: $(cat "$TMP/opener.log")"
stays "$(bg_pid opener)" "it has memory of pid $(bg_pid holder) open"
stays "$(bg_pid holder)" "with pid .*$(bg_pid opener).*it can move when it has freed that memory"
touch "$TMP/close"
wait_for 20 grep -q "closed" "$TMP/opener.log" || fail "opener: $(cat "$TMP/opener.log")"
"$OUT/bin/gleamctl" migrate "$(bg_pid opener)" gpu >"$TMP/migrate.out" 2>&1 || fail "it has closed it: $(cat "$TMP/migrate.out")"
touch "$TMP/end"
wait "$(bg_pid opener)" || fail "opener: $(cat "$TMP/opener.log")"
stop_bg holder || true
nowhere "its maker has ended"

for name in one two node; do
	stop_bg "$name" || fail "$name ended with status $?: $(tail -5 "$TMP/$name.log")"
done
if grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log; then
	fail "a daemon has complained"
fi
