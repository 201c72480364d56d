#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# serial
# A model's bytes cross a slow network once: the second load, by another process, sends a hundredth of them and is several times
# as fast; with the cache off, or another tenant's key, everything travels again.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"
. "$(dirname "$0")/../lib/cache.sh"

# Slow up, fast down: what is looked at comes back whole.
lab_up --rtt 0.3 --rate-ab 60mbit
model_make "$TMP/model" 33000000
first=$(load "$TMP/model" heap)
first_sent=$(sent)
between "bytes of the first load" 33000000 "$first_sent" 45000000
second=$(load "$TMP/model" heap)
say "first $first s, second $second s, $(sent) bytes"
between "bytes of the second load" 0 "$(sent)" $((first_sent / 100))
between_times "second load, as part of the first" 0 "$(awk -v a="$first" -v b="$second" 'BEGIN {print b / a}')" 0.5
# From a mapping it is told by its file, and has other chunks: once more, and then no more.
load "$TMP/model" mapped >/dev/null
load "$TMP/model" mapped >/dev/null
load "$TMP/model" mapped >/dev/null
between "bytes of a load from a mapping" 0 "$(sent)" $((first_sent / 100))
# A changed byte costs a piece.
printf 'x' | dd of="$TMP/model" bs=1 seek=20000000 conv=notrunc status=none
load "$TMP/model" heap >/dev/null
between "bytes of a load with a changed byte" 1000 "$(sent)" 1500000
GLEAM_CACHE=off load "$TMP/model" heap >/dev/null
between "bytes with the cache off" 33000000 "$(sent)" 45000000
lab_down
