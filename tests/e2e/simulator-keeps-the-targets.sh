#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the simulated cluster the policy `cost` keeps what docs/results/scheduler.md promises; runs repeat themselves; a wrong scenario is
# told with its line. Six seeds here, twenty with GLEAM_LONG=1.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"

need_built bin/gleam-sim
sim=$OUT/bin/gleam-sim scenarios=$TOP/tools/gleam-sim/scenarios
seeds=${GLEAM_LONG:+20}
seeds=${seeds:-6}
median() { awk -F'\t' -v ratio="$1" '$3 == ratio { print $5 }' "$2"; }
worst() { awk -F'\t' -v ratio="$1" '$3 == ratio { print $6 }' "$2"; }

"$sim" --ratios --seeds "$seeds" "$scenarios/mixed.scenario" | tee "$TMP/mixed"
between "mixed, against round-robin" 1.79 "$(median cost/round-robin "$TMP/mixed")" 9
between "mixed, against least-loaded" 1.3 "$(median cost/least-loaded "$TMP/mixed")" 9
between "mixed, against the oracle" 0.9 "$(median cost/oracle "$TMP/mixed")" 2
between "mixed, the worst seed against round-robin" 1.4 "$(worst cost/round-robin "$TMP/mixed")" 9
"$sim" --ratios --seeds "$seeds" --policy cost,least-loaded "$scenarios/homogeneous.scenario" | tee "$TMP/equal"
between "equal servers, against least-loaded" 0.98 "$(median cost/least-loaded "$TMP/equal")" 2

# Trouble: a server that flaps gets nobody to speak of, a liar does not draw all.
"$sim" --seeds 2 --policy cost "$scenarios/trouble.scenario" | tee "$TMP/trouble"
awk -F'\t' 'NR > 1 && ($12 > 12 || $9 < 200) { exit 1 }' "$TMP/trouble" || fail "the server that flaps took many, or little was done"
"$sim" --ratios --seeds "$seeds" --policy cost,least-loaded "$scenarios/liar.scenario" | tee "$TMP/liar"
between "beside a liar, against who doesn't look at speed" 0.9 "$(median cost/least-loaded "$TMP/liar")" 2

# Programs that are moved while they run: it is worth something where links drop, and costs nobody much where nothing happens.
"$sim" --ratios --seeds "$seeds" --policy moves,cost "$scenarios/links.scenario" | tee "$TMP/links"
between "moves, where links drop" 0.98 "$(median moves/cost "$TMP/links")" 2
"$sim" --ratios --seeds "$seeds" --policy moves,cost "$scenarios/homogeneous.scenario" | tee "$TMP/calm"
between "moves, where nothing happens" 0.97 "$(median moves/cost "$TMP/calm")" 2

# The same seed is the same run; another isn't.
once() { "$sim" --policy cost --trace "$scenarios/liar.scenario" --seeds "$1" 2>&1 >/dev/null | md5sum; }
same "a run again" "$(once 1)" "$(once 1)"
[ "$(once 1)" != "$(once 2)" ] || fail "seeds make no difference"

# A decision among 1,000 servers. (50 us where nothing slows the program down.)
"$sim" --decide 1000 | tee "$TMP/decide"
between "a decision among 1,000 servers (us)" 0 "$(awk 'NR == 2 { print $3 }' "$TMP/decide")" 500

wrong() { # WHAT TEXT-OF-A-SCENARIO
	printf '%b' "$2" >"$TMP/wrong.scenario"
	same "$1" 1 "$(status_of "$sim" "$TMP/wrong.scenario")"
	grep -q "$3" "$TMP/status.out" || fail "$1: unhelpful: $(cat "$TMP/status.out")"
}
wrong "an unknown word" 'brokers 2\nservers 4\n' "wrong.scenario:2: not a line that is known: .servers"
wrong "a unit" 'brokers 2\nhorizon 5min\n' ":2: not a unit"
wrong "a missing value" 'brokers 2\nnode a count 1 speed 1 rtt 1ms bandwidth 1gbit nic 1gbit\n' ":2: missing: .memory"
wrong "a negative number" 'horizon -5\n' ":1: not a number"
wrong "nothing in it" '# nothing\n' "it needs brokers"
wrong "a job of an unknown program" 'brokers 1\njob 1 x 0\n' ":2: not a program"
same "no such file" 1 "$(status_of "$sim" "$TMP/none.scenario")"
same "an unknown policy" 2 "$(status_of "$sim" --policy fastest "$scenarios/mixed.scenario")"
same "an unknown option" 2 "$(status_of "$sim" --fly)"
