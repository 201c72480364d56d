#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The control socket tells version, servers, clients and their counters as JSON, and refuses what it does not know.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

key_make "$TMP/key"
node_up node --key "$TMP/key"
broker_up broker --key "$TMP/key"
start_bg held "$OUT/tests/fake/fake-client" "$TMP/broker.sock" hold
wait_for 10 test -s "$TMP/held.log" || fail "no session"
ask() { client broker ask "$1"; }
# Reports come each second: the next one knows of the session.
wait_for 5 eval 'client broker ask "{\"cmd\":\"servers\"}" | grep -q "\"sessions\":1,"' || fail "no load report"
ask '{"cmd":"status"}' >"$TMP/status.json"
ask "{\"cmd\": \"clients\", \"pid\": $(bg_pid held)}" >"$TMP/clients.json"
ask '{"cmd":"version"}' >"$TMP/version.json"
python3 - "$TMP" "$(bg_pid held)" <<'PY'
import json, sys
folder, pid = sys.argv[1], int(sys.argv[2])
load = lambda name: json.load(open(f"{folder}/{name}.json"))
status = load("status")
assert status["server_count"] == 1 and status["client_count"] == 1, status
server, = status["servers"]
assert server["state"] == "ready" and server["tls"] is True and server["lanes"] == 4, server
assert server["rtt_us"] > 0 and server["sent"] > 0 and server["clients"] == 1, server
assert server["sessions"] == 1 and server["load"] >= 0, server
client, = status["clients"]
assert client["pid"] == pid and client["state"] == "live" and client["server"] == "gpu", client
assert client["program"] == "fake-client", client
one, = load("clients")["clients"]
assert one["pid"] == pid and one["api"] == [], one
assert set(load("version")) == {"version", "protocol"}
PY
case $(ask '{"cmd":"nothing"}') in *'"error"'*'know the command `nothing`; if it is older than gleamctl, restart it'*) ;; *) fail "an unknown command is taken" ;; esac
for bad in '' '{' '[]' '{"cmd":1}' '{"cmd":"status",}' '{"cmd":"status"} x' '{"cmd":"status","cmd":"status"}' '{"pid":3}'; do
	case $(ask "$bad") in '{"error"'*) ;; *) fail "not refused: $bad" ;; esac
done
# Node's own daemon tells of its role.
case $(client node ask '{"cmd":"status"}') in *'"node":{"listen"'*) ;; *) fail "no word of the node role" ;; esac
kill -KILL "$(bg_pid held)"
daemons_down broker node
