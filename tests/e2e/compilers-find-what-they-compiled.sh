#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What NVRTC has compiled is found again, in another process, too; torn files, a foreign folder and a full one cost a compilation and
# no more; CUDA_CACHE_DISABLE and CUDA_CACHE_MAXSIZE hold.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

path_up
export CUDA_CACHE_PATH=$TMP/kept
files() { find "$TMP/kept/gleam" -type f | wc -l; }
yes() { cuda compiled "$@" >"$TMP/out" 2>&1 || fail "compiled $*: $(cat "$TMP/out")"; }
no() { if cuda compiled "$@" >"$TMP/out" 2>&1; then fail "compiled $*: it was kept"; fi; }

yes
no get first
yes put first
yes get first
[ "$(files)" = 2 ] || fail "$(files) files of two results"
[ "$(stat -c %a "$TMP/kept/gleam")" = 700 ] || fail "others can read the folder"

for file in "$TMP"/kept/gleam/*; do
	printf x | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 1)) conv=notrunc status=none
done
no get first
yes put first
yes get first
for file in "$TMP"/kept/gleam/*; do truncate -s 40 "$file"; done
no get first
[ "$(files)" = 1 ] || fail "the torn file stays"
say "torn files are compiled again"

yes put first
chmod 777 "$TMP/kept/gleam"
no get first
chmod 700 "$TMP/kept/gleam"
yes get first
CUDA_CACHE_DISABLE=1 no get first
CUDA_CACHE_PATH=$TMP/no/such/place yes put second
CUDA_CACHE_PATH=$TMP/no/such/place no get second
GLEAM_LOG=1 CUDA_CACHE_PATH=/proc/1 cuda compiled put second 2>&1 | grep -q "set CUDA_CACHE_PATH" || fail "nobody is told that nothing is kept"

for i in $(seq 12); do
	CUDA_CACHE_MAXSIZE=1000 yes put "number $i"
done
size=$(find "$TMP/kept/gleam" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
[ "$size" -le 1000 ] || fail "$size bytes, 1000 were allowed"
CUDA_CACHE_MAXSIZE=1000 yes get "number 12"
no get "number 1"
say "$size bytes in $(files) files of 1000 allowed"
path_down
