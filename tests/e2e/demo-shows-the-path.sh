#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# serial
# `make demo` as it is: right results through two daemons, launches counted, a CUDA error when the node dies, nothing left;
# in network namespaces as root, on loopback as an ordinary user.
. "$(dirname "$0")/../lib/e2e.sh"

need_built bin/gleamd bin/gleamctl bin/gleam-worker tests/cuda/vecadd tests/lab/lanem
O=$OUT "$TOP/tools/demo/demo" >"$TMP/demo.out" 2>&1 || fail "$(tail -30 "$TMP/demo.out")"
grep -q 'nothing is left running or mounted' "$TMP/demo.out" || fail "$(tail -5 "$TMP/demo.out")"
if [ "$(id -u)" = 0 ] && [ -e /dev/net/tun ]; then
	grep -q 'fuse' "$TMP/demo.out" || fail "/gleam was not shown: $(tail -40 "$TMP/demo.out")"
fi
