#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# serial
# A lab has at least the round trip and at most the rate that were asked for, also after a change while it
# stands, without any program of iproute2. Upper bounds of times are loose: machines are busy.
. "$(dirname "$0")/../lib/e2e.sh"
need_root "(a TUN device and network namespaces)"
lanem=$OUT/tests/lab/lanem
need_built tests/lab/lanem

env -i PATH=/nonexistent "$lanem" --rtt 4 --rate 100mbit --measure --json --pings 30 --seconds 0.6 >"$TMP/a"
between "round trip (ms)" 4 "$(json rtt_ms.min <"$TMP/a")" 60
same "pings" 30 "$(json pings <"$TMP/a")"
same "lost" "[]" "$(json lost <"$TMP/a")"
between "rate A to B" 30e6 "$(json rate_bps.ab <"$TMP/a")" 100e6
between "rate B to A" 30e6 "$(json rate_bps.ba <"$TMP/a")" 100e6
# The counters are of both streams, with their headers.
between "bytes that B received" 2e6 "$(json interfaces.b.rx_bytes <"$TMP/a")" 20e6
between "bytes that A received" 2e6 "$(json interfaces.a.rx_bytes <"$TMP/a")" 20e6

start_bg lab "$lanem" up --name "e2e-limits-$$" --rate-ab 20mbit --queue 64k
wait_for 10 grep -qx ready "$TMP/lab.log"
"$lanem" measure --name "e2e-limits-$$" --json --pings 10 --seconds 0.4 >"$TMP/b"
between "rate A to B" 5e6 "$(json rate_bps.ab <"$TMP/b")" 20e6
between "rate B to A, which has no limit" 100e6 "$(json rate_bps.ba <"$TMP/b")" 1e12
between "round trip without delay (ms)" 0 "$(json rtt_ms.min <"$TMP/b")" 4

"$lanem" ctl --name "e2e-limits-$$" rate 50mbit
"$lanem" ctl --name "e2e-limits-$$" delay-ba 7ms
"$lanem" measure --name "e2e-limits-$$" --json --pings 10 --seconds 0.4 >"$TMP/c"
between "rate A to B after the change" 20e6 "$(json rate_bps.ab <"$TMP/c")" 50e6
between "rate B to A after the change" 20e6 "$(json rate_bps.ba <"$TMP/c")" 50e6
between "round trip after the change (ms)" 7 "$(json rtt_ms.min <"$TMP/c")" 60
same "the speed that ethtool tells" 50 \
	"$("$lanem" exec A --name "e2e-limits-$$" --sysfs -- cat /sys/class/net/gl0/speed)"

"$lanem" measure --name "e2e-limits-$$" --seconds 0.1
same "status of a command that is none" 1 "$(status_of "$lanem" ctl --name "e2e-limits-$$" rate fast)"
same "status of a command that is none" 1 "$(status_of "$lanem" ctl --name "e2e-limits-$$" fly)"
stop_bg lab
