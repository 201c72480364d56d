#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# coverage.sh OUTPUT [LEAST]: runs every program of tests/cuda through both daemons and writes which functions of the API they
# call; fails when a program fails or fewer than LEAST functions are called. `make coverage` is this.
. "$(dirname "$0")/e2e.sh"
. "$(dirname "$0")/gleam.sh"

output=$1 least=${2:-0}
export GLEAM_SOFTGPU_DEVICES=${GLEAM_SOFTGPU_DEVICES:-2}
mkdir "$TMP/slices"
path_up
for path in "$OUT"/tests/cuda/*; do
	program=$(basename "$path")
	case $program in differ* | rt_lost_*) continue ;; esac # a test of its own; its session ends with its worker
	{ [ -f "$path" ] && [ -x "$path" ]; } || continue
	case $program in rt_*_shared) [ -d "${CUDA_LIBRARIES:-/usr/local/cuda/lib64}" ] || continue ;; esac
	before=$(stat -c %s "$TMP/broker.log")
	gone=$(grep -c ': gone' "$TMP/broker.log" || true)
	status=0
	LD_LIBRARY_PATH=${CUDA_LIBRARIES:-/usr/local/cuda/lib64} cuda "$program" >"$TMP/$program.out" 2>&1 || status=$?
	case $status in
	0) ;;
	77)
		say "$program: $(tail -1 "$TMP/$program.out")"
		continue
		;;
	*) fail "$program: $(tail -20 "$TMP/$program.out")" ;;
	esac
	# The daemon hears of the end a little later.
	wait_for 5 sh -c "[ \$(grep -c ': gone' '$TMP/broker.log') -gt $gone ]"
	sleep 0.1
	tail -c +$((before + 1)) "$TMP/broker.log" >"$TMP/slices/$program.log"
done
path_down
python3 -B "$TOP/tests/lib/coverage.py" --api "$TOP/libgleamcuda/api" --logs "$TMP/slices" --out "$output" --least "$least"
