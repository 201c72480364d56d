#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node whose driver is our own client library says so, and a client is told that there is no usable GPU.
. "$(dirname "$0")/../lib/e2e.sh"

need_built bin/gleamd bin/gleam-worker lib/libcuda.so.1
port=$(free_port)
start_bg node "$OUT/bin/gleamd" --no-fuse --socket "$TMP/node.sock" --listen "127.0.0.1:$port" \
	--driver "$OUT/lib/libcuda.so.1" --log debug
wait_for 10 grep -q "own client library" "$TMP/node.log" || fail "the node does not say it: $(cat "$TMP/node.log")"
start_bg broker "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" --server "gpu=127.0.0.1:$port" --log debug
wait_for 10 grep -q 'is ready' "$TMP/broker.log"
status=0
GLEAM_LOG=1 GLEAM_SOCKET=$TMP/gleamd.sock LD_LIBRARY_PATH=$OUT/lib timeout "$(slow 20)" "$OUT/tests/cuda/vecadd" >"$TMP/out" 2>&1 || status=$?
same "status of the program" 1 "$status"
grep -q "CUDA_ERROR_NO_DEVICE" "$TMP/out" || fail "the program was not told: $(cat "$TMP/out")"
grep -q "client library" "$TMP/out" || fail "the log does not say why: $(cat "$TMP/out")"
stop_bg broker
stop_bg node
