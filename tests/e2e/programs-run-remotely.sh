#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 180
# Programs of the driver API give right results and the driver's codes through both daemons, TLS and the software GPU;
# where nvcc is, programs of the runtime API too, with static and with shared cudart, two times each (field case P-001).
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

path_up
for file in "$OUT"/tests/cuda/*; do
	program=$(basename "$file")
	[ -f "$file" ] && [ -x "$file" ] || continue
	case $program in
	differ* | rt_* | *.so*) continue ;; # tests of their own; below
	esac
	status=0
	cuda "$program" >"$TMP/$program.out" 2>&1 || status=$?
	# 77: it wants more than one GPU, and has a test of its own.
	[ $status = 0 ] || [ $status = 77 ] || fail "$program: $(tail -20 "$TMP/$program.out")"
	say "$program: $(tail -1 "$TMP/$program.out")"
done
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if sanitized; then
	say "a sanitizer's library: programs that nvcc builds can't load it"
elif [ -x "$nvcc" ]; then
	export LD_LIBRARY_PATH
	LD_LIBRARY_PATH=$(dirname "$(readlink -f "$nvcc")")/../lib64
	for source in "$TOP"/tests/cuda/runtime/*.cu; do
		for kind in static shared; do
			program=rt_$(basename "$source" .cu)_$kind
			[ -x "$OUT/tests/cuda/$program" ] || make -s -C "$TOP" O="$OUT" cuda-runtime >/dev/null
			for turn in 1 2; do
				cuda "$program" >"$TMP/$program.out" 2>&1 || fail "$program: $(tail -20 "$TMP/$program.out")"
			done
			say "$program: $(tail -1 "$TMP/$program.out")"
		done
	done
else
	say "no nvcc here: programs of the runtime API are left out"
fi
path_down
