#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Our prototypes, types, numbers and names are those of an installed CUDA toolkit of the version that they were
# written for.
# time-limit: 180
. "$(dirname "$0")/../lib/e2e.sh"
need_cmd python3 gcc nm
home=${CUDA_HOME:-/usr/local/cuda}
[ -r "$home/include/cuda.h" ] || skip "no CUDA toolkit in $home (CUDA_HOME names another place)"
want=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\)$/\1/p' "$TOP/broker/proto/cuda_abi.h")
have=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\)$/\1/p' "$home/include/cuda.h")
[ "$want" = "$have" ] || skip "the toolkit in $home is version $have, ours is written for $want"
python3 -B "$TOP/tests/apigen/toolkit.py" "$home" "$TMP"
