#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# On a server with several GPUs a program gets one, the least taken, or as many as it asks for; CUDA_VISIBLE_DEVICES by number,
# UUID and beginnings of them means what it means on a machine with these GPUs (field case P-012).
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/devices
export GLEAM_SOFTGPU_DEVICES=3 GLEAM_SOFTGPU_SEED=lab
soft_up

# The UUIDs as the driver itself lists them.
ln -s "$OUT/lib/libsoftcuda.so" "$TMP/libcuda.so.1"
mapfile -t gpus < <(LD_LIBRARY_PATH=$TMP "$OUT/tests/cuda/devices" | grep ^GPU-)
same "GPUs of the driver" 3 "${#gpus[@]}"

# sees COUNT UUID... : with the environment as it is
sees() { program devices "$@" >"$TMP/devices.out" 2>&1 || fail "$* expected: $(cat "$TMP/devices.out")"; }
# refused TEXT: no device, and the log says why
refused() {
	GLEAM_LOG=1 program devices >"$TMP/devices.out" 2>&1 && fail "not refused: $(cat "$TMP/devices.out")"
	grep -q "CUDA_ERROR_$1" "$TMP/devices.out" || fail "not $1: $(cat "$TMP/devices.out")"
	grep -q -- "$2" "$TMP/devices.out" || fail "the log does not say \"$2\": $(cat "$TMP/devices.out")"
}
uuids() { program devices | grep ^GPU-; }

# One, and two programs at a time are on two of them: the first waits in a copy of its output.
wait_for 20 log_has node "GPU 2"
same "GPUs by default" 1 "$(uuids | wc -l)"
export GLEAM_GPUS=all
sees "${gpus[@]}"
export GLEAM_GPUS=2
same "GPUs when two are asked for" 2 "$(uuids | wc -l)"
export GLEAM_GPUS=4
refused NO_DEVICE "GLEAM_GPUS=4: the server has 3 GPUs"
export GLEAM_GPUS=some
refused NO_DEVICE 'neither a number from 1 to 16 nor "all"'
unset GLEAM_GPUS
same "GPUs by gleamctl run" 3 "$("$OUT/bin/gleamctl" run --gpus all -- "$OUT/tests/cuda/devices" | grep -c ^GPU-)"

# As natively: each list in both ways, and the same lines.
for visible in 0 1 2 0,1 2,0 1,2,0 "${gpus[1]}" "${gpus[2]},${gpus[0]}" "${gpus[1]:0:12}" 1,9,0 " 1" "${gpus[1]},1" "" none -1 9 0,0 1,1,0; do
	export CUDA_VISIBLE_DEVICES=$visible
	LD_LIBRARY_PATH=$TMP "$OUT/tests/cuda/devices" >"$TMP/native.out" 2>&1 || true
	program devices >"$TMP/gleam.out" 2>&1 || true
	diff -u "$TMP/native.out" "$TMP/gleam.out" || fail "CUDA_VISIBLE_DEVICES='$visible' differs"
	CUDA_DEVICE_ORDER=PCI_BUS_ID program devices >"$TMP/gleam.out" 2>&1 || true
	diff -u "$TMP/native.out" "$TMP/gleam.out" || fail "CUDA_VISIBLE_DEVICES='$visible' by place on the bus differs"
done
unset CUDA_VISIBLE_DEVICES

# Programs that run at once are on different GPUs.
for i in 1 2 3; do
	LD_LIBRARY_PATH=$OUT/lib start_bg "held$i" "$OUT/tests/cuda/devices" --hold "$TMP/go"
	wait_for 20 log_has "held$i" ^GPU-
done
same "GPUs of three programs" 3 "$(cat "$TMP"/held?.log | grep ^GPU- | sort -u | wc -l)"
touch "$TMP/go"
for i in 1 2 3; do
	wait_for 20 log_has "held$i" passed
done
soft_down
