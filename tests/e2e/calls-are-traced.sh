#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# GLEAM_TRACE=file records every call with arguments and result, of all threads, also of a program that is killed; the file is
# bounded; gleamctl lists it and makes a trace for Chrome. A file that can't be written is one line in the log.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"

gleamctl=$OUT/bin/gleamctl
path_up
GLEAM_TRACE=$TMP/trace GLEAM_STATS=$TMP/stats cuda vecadd 1000 >"$TMP/out" || fail "$(cat "$TMP/out")"
"$gleamctl" trace "$TMP/trace" >"$TMP/list"
grep -q 'cuInit(Flags=0) = CUDA_SUCCESS$' "$TMP/list" || fail "the first call: $(cat "$TMP/list")"
grep -q 'cuModuleGetFunction(hfunc=0x[0-9a-f]*, hmod=0x[0-9a-f]*, name="vecadd") = CUDA_SUCCESS$' "$TMP/list" || fail "$(cat "$TMP/list")"
grep -q 'cuMemAlloc_v2(dptr=0x2000[0-9a-f]*, bytesize=4000) = CUDA_SUCCESS$' "$TMP/list" || fail "$(cat "$TMP/list")"
grep -q 'cuDeviceGetCount(count=1) = CUDA_SUCCESS$' "$TMP/list" || fail "$(cat "$TMP/list")"
# Names, how often, and round trips are those of the counters, which begin behind cuInit.
same "calls by name" "$(awk '{ print $1, $2 }' "$TMP/stats" | sort)" \
	"$(sed -n 's/^[^#].* \(cu[A-Za-z0-9_]*\)(.*/\1/p' "$TMP/list" | grep -vx cuInit | sort | uniq -c | awk '{ print $2, $1 }' | sort)"
same "round trips" "$(awk '{ sum += $4 } END { print sum }' "$TMP/stats")" "$(awk '/^[^#]/ { sum += $4 } END { print sum }' "$TMP/list")"

"$gleamctl" trace "$TMP/trace" --chrome "$TMP/chrome.json" >"$TMP/said"
python3 - "$TMP/chrome.json" "$(grep -c '^[^#]' "$TMP/list")" <<'EOF' || fail "the trace for Chrome"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
calls = [event for event in events if event["ph"] == "X" and event["pid"] >= 10]
assert len(calls) == int(sys.argv[2]), (len(calls), sys.argv[2])
assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in calls)
assert any('name=\"vecadd\"' in event["args"]["call"] for event in calls)
# The commands of a call are played between its beginning and its end, as far as the clocks can be aligned; broker and GPU are there.
spans = [event for event in events if event["ph"] == "X" and event["pid"] < 10]
sent = {event["args"]["command"]: event["ts"] for event in spans if event["pid"] == 1 and event["tid"] == 1}
played = {event["args"]["command"]: event for event in spans if event["pid"] == 3}
assert sent and played and any(event["pid"] == 4 and event["dur"] > 0 for event in spans), spans
launch = next(number for number, event in played.items() if event["name"] == "gleamLaunch")
assert sent[launch] <= played[launch]["ts"] + 1, (sent[launch], played[launch])
for call in calls:
	if call["args"]["answered"] and call["args"]["command"] in played:
		event = played[call["args"]["command"]]
		assert call["ts"] - 1 <= event["ts"] and event["ts"] + event["dur"] <= call["ts"] + call["dur"] + 1, (call, event)
EOF

# What calls that wait are made of: the parts are all there, and make the whole. Without a daemon in between its parts are missing.
GLEAM_TRACE=$TMP/waits cuda latency 300 >"$TMP/out" || fail "$(cat "$TMP/out")"
"$gleamctl" trace "$TMP/waits" --hops >"$TMP/hops"
python3 - "$TMP/hops" <<'EOF' || fail "what they are made of: $(cat "$TMP/hops")"
import sys
lines = [line.split() for line in open(sys.argv[1]) if line[0] != "#"]
rows = {line[0]: line[1:] for line in lines}
assert all(len(row) == 9 for row in rows.values()), rows
for name, gpu in (("cuMemcpyDtoH_v2", True), ("cuMemGetInfo_v2", False)):
	if name not in rows:
		continue
	count, program, *parts, whole = rows[name]
	assert (parts[3] != "-") == gpu, (name, parts)
	made = sum(float(part) for part in parts if part != "-")
	# Medians of parts, not parts of one.
	assert float(program) < float(whole), (name, program, whole)
	assert int(count) > 0 and 0.5 * float(whole) < made < 1.5 * float(whole), (name, made, whole)
assert "cuMemcpyDtoH_v2" in rows or "cuCtxSynchronize" in rows, rows
EOF

# Failures, several threads, a file of its own for each process.
GLEAM_TRACE=$TMP/of.%p cuda errors >"$TMP/out" || fail "$(cat "$TMP/out")"
for file in "$TMP"/of.[0-9]*; do
	"$gleamctl" trace "$file"
done >"$TMP/list"
grep -q '= CUDA_ERROR_INVALID_VALUE$' "$TMP/list" || fail "no failure is told"
GLEAM_TRACE=$TMP/threads cuda cases_callbacks >"$TMP/out" || fail "$(cat "$TMP/out")"
[ "$("$gleamctl" trace "$TMP/threads" | awk '/^[^#]/ { print $2 }' | sort -u | wc -l)" -gt 1 ] || fail "one thread only"

# A small file keeps the newest calls.
GLEAM_TRACE=$TMP/small GLEAM_TRACE_MIB=1 cuda steps token 20 >"$TMP/out" || fail "$(cat "$TMP/out")"
[ "$(stat -c %s "$TMP/small")" -le $(((1 << 20) + (64 << 10))) ] || fail "$(stat -c %s "$TMP/small") bytes"
"$gleamctl" trace "$TMP/small" >"$TMP/list"
grep -q '^# the beginning is gone' "$TMP/list" || fail "nothing says that the beginning is gone"
tail -1 "$TMP/list" | grep -q 'cuCtxSynchronize' || fail "the last call is not there: $(tail -3 "$TMP/list")"
awk '/^[^#]/ { if ($1 + 0 < last) exit 1; last = $1 }' "$TMP/list" || fail "not in the order of time"

# What a killed program did until shortly before.
start_bg killed env "GLEAM_TRACE=$TMP/killed" "LD_LIBRARY_PATH=$OUT/lib" "$OUT/tests/cuda/latency" 10000000
listed() { "$gleamctl" trace "$TMP/killed" 2>/dev/null | grep -q cuMemcpyDtoH_v2; }
wait_for 20 listed
kill -9 "$(bg_pid killed)"
stop_bg killed || true
listed || fail "nothing is left of a killed program"

# Who can't be written to, and what is no trace.
GLEAM_TRACE=$TMP/no/such/folder GLEAM_LOG=$TMP/log cuda vecadd 1000 >"$TMP/out" || fail "$(cat "$TMP/out")"
same "lines about it" 1 "$(grep -c 'GLEAM_TRACE=.*No such file' "$TMP/log")"
GLEAM_TRACE=/dev/full GLEAM_LOG=$TMP/log2 cuda vecadd 1000 >"$TMP/out" || fail "$(cat "$TMP/out")"
same "lines about a full disk" 1 "$(grep -c GLEAM_TRACE "$TMP/log2")"
head -c 300 /dev/urandom >"$TMP/noise"
same "status of noise" 1 "$(status_of "$gleamctl" trace "$TMP/noise")"
same "status of what isn't there" 1 "$(status_of "$gleamctl" trace "$TMP/nothing")"
same "status without a file" 2 "$(status_of "$gleamctl" trace)"
# Changed and cut ones harm nobody.
for at in 5 40 260 65536 65550 65570 65600 65640; do
	cp "$TMP/trace" "$TMP/bad"
	printf '\377\377\377\377' | dd of="$TMP/bad" bs=1 seek=$at conv=notrunc status=none
	"$gleamctl" trace "$TMP/bad" >"$TMP/out" 2>&1 || [ $? = 1 ] || fail "a changed file"
	head -c "$at" "$TMP/trace" >"$TMP/bad"
	"$gleamctl" trace "$TMP/bad" >"$TMP/out" 2>&1 || [ $? = 1 ] || fail "a cut file"
done
path_down
