#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What gleam-sim says of a small cluster is what real daemons do there: two servers of modelled speed behind two kinds of links, programs of
# kernels, of round trips and of bytes. Throughput of round-robin, whose choices no load of this machine turns, is within 15% of the simulated median in one of
# three runs. GLEAM_LONG=1: of `cost` throughput and the mean of what programs take, both within 15%, the median of three runs of more programs that take longer.
# Skipped where the machine's other work outweighs a round trip.
# time-limit: 400
# serial
. "$(dirname "$0")/../lib/e2e.sh"

need_root "(network namespaces)"
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
[ "$(nproc)" -ge 2 ] || skip "needs two cores"
need_cmd python3 ip tc
need_built bin/gleamd bin/gleam-worker bin/gleam-sim bin/gleamctl lib/libcuda.so.1 lib/libsoftcuda.so tests/lab/lanem tests/cuda/load
! ldd "$OUT/bin/gleamd" | grep -qE 'lib(a|t|ub)san' || skip "a sanitizer's times are its own"
size=(--policies round-robin --seconds 1.5 --jobs 8 --runs 1 --within 0.15 --throughput-only)
[ -z "${GLEAM_LONG:-}" ] || size=(--policies cost --seconds 2.5 --jobs 20 --runs 3 --within 0.15)
status=0
python3 "$TOP/tests/gpu/sched" --out "$TMP" --bin "$OUT/bin" --lib "$OUT/lib" --gleam "$OUT/lib" --tests "$OUT/tests/cuda" \
	--lanem "$OUT/tests/lab/lanem" "${size[@]}" >"$TMP/sched.log" 2>&1 || status=$?
cat "$TMP/sched.log"
[ "$status" != 77 ] || skip "$(tail -n 1 "$TMP/sched.log")"
same "status" 0 "$status"
