#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# Random programs of the driver API have the same results, codes and memory directly on the software GPU and through both
# daemons; so have the programs that once did not. The daemons end clean.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

need_built tests/cuda/differ
mkdir "$TMP/direct"
ln -s "$OUT/lib/libsoftcuda.so" "$TMP/direct/libcuda.so.1"
path_up
differ=("$TOP/tests/cuda/differ.py" --differ "$OUT/tests/cuda/differ" --direct "$TMP/direct" --gleam "$OUT/lib")
"${differ[@]}" --play "$TOP"/tests/cuda/differ-seeds/*.program || fail "a kept program differs"
# What fits into the time that a test may take on a busy machine; `make differ` runs all.
"${differ[@]}" --seeds "${DIFFER_SEEDS:-1:400}" --seconds 30 || fail "seeds differ; tests/cuda/differ.py --shrink makes one smaller"
path_down
