#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gleamctl doctor says what is wrong and what to do about it, finds nothing wrong where nothing is, and changes nothing.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built bin/gleamctl
ctl=$OUT/bin/gleamctl
unset LD_LIBRARY_PATH LD_PRELOAD
doctor() { status=0; "$ctl" doctor --config "$TMP/gleam.conf" "$@" >"$TMP/doctor.out" 2>"$TMP/doctor.err" || status=$?; }
says() { grep -qE -- "$1" "$TMP/doctor.out" || fail "the doctor does not say '$1': $(cat "$TMP/doctor.out" "$TMP/doctor.err")"; }

# --- everything is well
"$ctl" key new "$TMP/key" >/dev/null
PORT=$(free_port)
start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver softgpu --no-fuse --key "$TMP/key"
wait_for 20 log_has node "is warm" || fail "$(cat "$TMP/node.log")"
cat >"$TMP/gleam.conf" <<END
[daemon]
socket = $TMP/client.sock
[servers]
lab = 127.0.0.1:$PORT
[key]
file = $TMP/key
[tree]
mount = no
END
start_bg client "$OUT/bin/gleamd" --config "$TMP/gleam.conf"
wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
# Pings of a busy machine are slow for a moment.
well() { doctor && ! grep -q 'ms away' "$TMP/doctor.out"; }
wait_for 20 well || fail "$(cat "$TMP/doctor.out")"
same "nothing is wrong" 0 "$status"
says "^config +ok +$TMP/gleam.conf: 1 servers$"
says "^daemon +ok +gleamd .* answers at $TMP/client.sock$"
says "^key +ok +$TMP/key: 1 tenants, the first is default with id [0-9a-f]{16}"
says "^server +ok +lab \(127.0.0.1:$PORT\): [0-9.]+ ms, TLS, 1 x Gleam Software GPU$"
says "^io_uring +ok "
says "^limits +ok +gleamd may open"
doctor --json
python3 - "$TMP/doctor.out" <<'PY'
import json, sys
answer = json.load(open(sys.argv[1]))
assert answer["failures"] == 0, answer
for finding in answer["findings"]:
    assert finding["level"] in ("ok", "note", "warn", "fail"), finding
    assert finding["level"] != "ok" or "advice" not in finding, finding
    assert finding["level"] not in ("warn", "fail") or finding["advice"], finding
assert {"config", "daemon", "library", "key", "server", "io_uring", "limits", "kernel"} <= {f["check"] for f in answer["findings"]}
PY
# The node's own machine.
"$ctl" doctor --socket "$TMP/node.sock" --config "$TMP/gleam.conf" >"$TMP/doctor.out" || true
says "^node +ok +offers 1 x Gleam Software GPU on 127.0.0.1:$PORT, driver .*libsoftcuda.so, [01] workers warm$"

# --- the shell
mkdir "$TMP/lib"
echo "no library" >"$TMP/lib/libcuda.so.1"
LD_LIBRARY_PATH=$TMP/lib doctor
says "^library +warn +LD_LIBRARY_PATH of this shell leads to another driver: $TMP/lib/libcuda.so.1$"
LD_LIBRARY_PATH=$OUT/lib doctor
says "^library +ok +LD_LIBRARY_PATH of this shell leads to Gleam's: $OUT/lib/libcuda.so.1$"
if ! ldd "$ctl" | grep -qE 'lib(a|t|ub)san'; then
	status=0
	(ulimit -v 4000000 && "$ctl" doctor --config "$TMP/gleam.conf") >"$TMP/doctor.out" 2>&1 || status=$?
	same "limited addresses" 1 "$status"
	says "^limits +FAIL +addresses are limited to 3906 MiB here"
	says "-> ulimit -v unlimited"
fi

# --- a server that can't be reached, one with another key
closed=$(free_port)
"$ctl" key new --tenant other "$TMP/other" >/dev/null
stop_bg client
sed -i "s|^lab = .*|&\nattic = 127.0.0.1:$closed|" "$TMP/gleam.conf"
start_bg client "$OUT/bin/gleamd" --config "$TMP/gleam.conf"
wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
doctor
same "a server is not there" 1 "$status"
says "^server +FAIL +attic \(127.0.0.1:$closed\) is unreachable: .*Connection refused"
says "-> is gleamd running there, with \[node\] listen on that address and port\?"
says "^1 failed, "
stop_bg client
sed -i "/^attic/d; s|^file = .*|file = $TMP/other|" "$TMP/gleam.conf"
start_bg client "$OUT/bin/gleamd" --config "$TMP/gleam.conf"
wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
doctor
same "another key" 1 "$status"
says "^server +FAIL +lab .*key"
says "-> both machines need the same key"

# --- no daemon, and settings that nobody can read
stop_bg client
doctor
same "no daemon" 1 "$status"
says "^daemon +FAIL +$TMP/client.sock: "
chmod 644 "$TMP/other"
sed -i 's|^mount = no|mount = no\nheight = 7|' "$TMP/gleam.conf"
doctor
says "^config +FAIL +$TMP/gleam.conf:9: "
sed -i '/^height/d' "$TMP/gleam.conf"
doctor
says "^key +FAIL +$TMP/other: others may read this key"
rm "$TMP/other"
doctor
says "^key +FAIL +$TMP/other: .*No such file"
says "-> gleamctl pair gets it from a server; gleamctl key new makes one"
"$ctl" doctor --config "$TMP/nowhere.conf" >"$TMP/doctor.out" || true
says "^config +FAIL +.*$TMP/nowhere.conf: No such file"
stop_bg node || fail "the node ended with $?"
