#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# What cuMemGetInfo says is what allocations get, with two programs on one GPU, and OUT_OF_MEMORY is clean; what one gives back the
# other sees (field case P-011).
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built tests/cuda/cases_memory
# Workers have a user of their own, who must be able to write it.
: >"$TMP/ledger"
chmod 666 "$TMP/ledger"
export GLEAM_SOFTGPU_MEMORY=1536M GLEAM_SOFTGPU_LEDGER=$TMP/ledger
soft_up
program cases_memory story 1024 >"$TMP/story.out" 2>&1 || fail "$(tail "$TMP/story.out")"
say "$(tail -1 "$TMP/story.out")"
soft_down
