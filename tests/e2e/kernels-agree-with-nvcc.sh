#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 180
# The committed PTX is what nvcc makes of the .cu beside it.
. "$(dirname "$0")/../lib/e2e.sh"

[ -x "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)" ] || skip "needs nvcc"
"$TOP/tests/cuda/kernels/regen" --check
