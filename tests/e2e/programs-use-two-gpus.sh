#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# Programs that use two GPUs of a server: copies between them, kernels in each other's memory, events across; also without
# Gleam on the same driver.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/peers
export GLEAM_SOFTGPU_DEVICES=2 GLEAM_GPUS=2
soft_up
ln -s "$OUT/lib/libsoftcuda.so" "$TMP/libcuda.so.1"
for arguments in "" illegal; do
	# shellcheck disable=SC2086 # one word or none
	LD_LIBRARY_PATH=$TMP timeout "$(slow 60)" "$OUT/tests/cuda/peers" $arguments >"$TMP/peers.out" 2>&1 ||
		fail "the driver alone $arguments: $(tail "$TMP/peers.out")"
	# shellcheck disable=SC2086
	program peers $arguments >"$TMP/peers.out" 2>&1 || fail "through Gleam $arguments: $(tail "$TMP/peers.out")"
	say "peers $arguments: $(tail -1 "$TMP/peers.out")"
done
# The programs of one GPU do as well with two.
for name in copies streams; do
	program "$name" >"$TMP/$name.out" 2>&1 || fail "$name: $(tail "$TMP/$name.out")"
done
soft_down
