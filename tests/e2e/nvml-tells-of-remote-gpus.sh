#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libnvidia-ml.so.1 of a client: what its node's NVML measures arrives, as pynvml, gpustat and PyTorch ask for it; it agrees with
# CUDA, memory and processes included; wrong use is answered as by NVML; without a daemon the start says so.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built lib/libnvidia-ml.so.1 tests/fake/libfakenvml.so

# With a measuring NVML beside the driver.
mkdir "$TMP/driver"
ln -s "$OUT/lib/libsoftcuda.so" "$TMP/driver/libsoftcuda.so"
ln -s "$OUT/tests/fake/libfakenvml.so" "$TMP/driver/libnvidia-ml.so.1"
path_up --driver "$TMP/driver/libsoftcuda.so"
wait_for 15 grep -q 'driver version 580.42.01' "$TMP/node.log" || fail "the node does not ask its NVML"
cuda nvml >"$TMP/out" 2>&1 || fail "nvml: $(cat "$TMP/out")"
say "$(tail -1 "$TMP/out")"
if sanitized; then
	say "a sanitizer's library: python can't load it"
else
	nvml() { LD_LIBRARY_PATH=$OUT/lib python3 "$TOP/tests/lib/nvml.py" "$@"; }
	has() { grep -q "$1" "$TMP/json" || fail "no $1 in $(cat "$TMP/json")"; }
	sleep 2 # a report of the node
	nvml json >"$TMP/json" || fail "$(cat "$TMP/json")"
	for fact in '"driver": "580.42.01"' '"cuda": 13000' '"temperature": 46' '"power": 123456' '"limit": 700000' '"gpu": 37' \
		'"memory": 12' '"fan": "N/A"' 1003 '"name": "Gleam Software GPU"'; do
		has "$fact"
	done
	nvml list | grep -q '46°C, 37 %, 123 W' || fail "$(nvml list)"
	nvml bad || fail "wrong use is answered wrongly"
	[ "$(nvml torch)" = "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["gpus"][0]["uuid"])' "$TMP/json")" ] ||
		fail "PyTorch counts $(nvml torch)"
	GLEAM_SERVER=nobody nvml json >"$TMP/json" || fail "$(cat "$TMP/json")"
	has '"gpus": \[\]'
	! GLEAM_SOCKET=$TMP/none nvml list >"$TMP/none.out" || fail "GPUs without a daemon"
	grep -q 'daemon of Gleam is not running' "$TMP/none.out" || fail "without a daemon: $(cat "$TMP/none.out")"
fi
path_down

# The software GPU's own: memory that all its processes use.
unset PORT
# Workers may run as another user, who doesn't get into $TMP.
export GLEAM_SOFTGPU_LEDGER=/dev/shm/gleam-ledger-$$
cleanup() { rm -f "/dev/shm/gleam-ledger-$$"; }
(umask 0 && : >"$GLEAM_SOFTGPU_LEDGER")
path_up
cuda nvml memory >"$TMP/out" 2>&1 || fail "nvml memory: $(cat "$TMP/out")"
say "$(tail -1 "$TMP/out")"
path_down
