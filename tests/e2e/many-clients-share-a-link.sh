#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# serial
# 32 clients at once get right results over one command connection and the configured bulk lanes; and a client's
# gigabyte does not stand before another's small calls.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

need_cmd ss
lanes=2
path_up -- --lanes $lanes
pids=()
for i in $(seq 32); do
	cuda vecadd 20000 20 50 >"$TMP/client$i.out" 2>&1 &
	pids+=($!)
done
seen=0
for _ in $(seq 100); do
	now=$(ss -Htn state established "dport = :$PORT" | wc -l)
	clients=$(pgrep -c -s 0 -f "^$OUT/tests/cuda/vecadd" || true)
	[ "$now" -le $((1 + lanes)) ] || fail "$now connections between the daemons with $clients clients"
	[ "$clients" -lt 32 ] || seen=$now
	sleep 0.05
	[ "$clients" -gt 0 ] || break
done
i=0
for pid in "${pids[@]}"; do
	i=$((i + 1))
	wait "$pid" || fail "client $i: $(cat "$TMP/client$i.out")"
	grep -q '1 passed, 0 failed' "$TMP/client$i.out" || fail "client $i: $(cat "$TMP/client$i.out")"
done
same "connections while 32 clients worked" $((1 + lanes)) "$seen"

# Three turns, the median: a busy machine makes single ones meaningless. Flood and call need a core each at both ends, which
# all are this machine. Where there are eight, the tail may grow by three times at most. With fewer the scheduler's time
# slices come between, so there the middle only has to stay well under what one 64 MiB copy of the flood takes.
cores=$(nproc)
quantile=p99
[ "$cores" -ge 8 ] || quantile=p50
besides=()
ratios=()
for turn in 1 2 3; do
	alone=$(cuda latency 1500 | sed -n 1p | json $quantile)
	start_bg "flood$turn" env LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/latency" 1 bulk 1048576
	wait_for 20 grep -q 'session' "$TMP/broker.log"
	sleep 0.5
	beside=$(cuda latency 1500 | sed -n 1p | json $quantile)
	alive "$(bg_pid "flood$turn")" || fail "the flood was over too soon"
	kill "$(bg_pid "flood$turn")"
	say "$quantile of a small call: $alone us alone, $beside us beside a flood"
	besides+=("$beside")
	ratios+=("$(awk -v a="$alone" -v b="$beside" 'BEGIN {printf "%.2f", b / a}')")
done
ratio=$(printf '%s\n' "${ratios[@]}" | sort -n | sed -n 2p)
say "$quantile beside a flood / alone: ${ratios[*]}, median $ratio"
if [ "$cores" -ge 8 ]; then
	between "ratio" 0 "$ratio" 3
else
	between "small call beside a flood (us)" 0 "$(printf '%s\n' "${besides[@]}" | sort -n | sed -n 2p)" 60000
fi
path_down
