#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 90
# The server of a session is one that Avahi announced, and gleamd is killed: the next gleamd waits until it hears of that server again, and the session goes on.
# Where another machine has its name by then, or nobody within the time of grace, the program is told why.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

key_make "$TMP/key"
mkdir "$TMP/bin"
mkfifo "$TMP/lines"
# As avahi-browse: stays, and prints what happens. And as avahi-publish-service: stays.
printf '#!/bin/sh\nexec cat <>%s/lines\n' "$TMP" >"$TMP/bin/avahi-browse"
printf '#!/bin/sh\nexec sleep 1000\n' >"$TMP/bin/avahi-publish-service"
chmod +x "$TMP/bin"/*
found() { printf '=;lo;IPv4;%s;_gleam._tcp;local;host.local;127.0.0.1;%s;\n' "$1" "$2" >"$TMP/lines"; }

PORT=$(free_port) && node_up one --key "$TMP/key" --grace 20
one=$PORT
PORT=$(free_port) && node_up other --key "$TMP/key" --grace 20
other=$PORT
turn=0
next() { # GRACE
	turn=$((turn + 1))
	printf '[scheduler]\ndiscover = yes\n[link]\ngrace = %s\n' "$1" >"$TMP/discover.conf"
	PATH=$TMP/bin:$PATH start_bg "broker-$turn" "$OUT/bin/gleamd" --socket "$TMP/broker.sock" --no-fuse --log debug \
		--config "$TMP/discover.conf" --key "$TMP/key"
	wait_for 10 log_has "broker-$turn" "is ready" || fail "$(cat "$TMP/broker-$turn.log")"
}
killed() { stop_bg "broker-$turn" KILL || true; }
# session NAME COMMAND...: a client with a session on the announced server
session() {
	found lan "$one"
	wait_for 10 log_has "broker-$turn" "server lan: link to" || fail "not used: $(cat "$TMP/broker-$turn.log")"
	start_bg "$1" env FAKE_RETURNS=1 FAKE_SETTINGS=GLEAM_SERVER=lan timeout "$(slow 60)" "$OUT/tests/fake/fake-client" "$TMP/broker.sock" "${@:2}"
	wait_for 10 log_has "broker-$turn" "pid [0-9]* .*: session [0-9]* on lan" || fail "$1: $(cat "$TMP/$1.log" "$TMP/broker-$turn.log")"
	# It asks its worker something first.
	[ "$2" != hold ] || wait_for 10 test -s "$TMP/$1.log" || fail "$1: $(cat "$TMP/broker-$turn.log")"
}

# ---- announced after a while ----
next 30
session flows stream 300000
killed
next 30
sleep 1
! log_has "broker-$turn" "goes on after" || fail "it went on with a server that nobody has announced"
found lan "$one"
wait_for 20 log_has "broker-$turn" "session [0-9]* was an earlier gleamd's, on lan" || fail "not heard of: $(cat "$TMP/broker-$turn.log")"
wait_for 20 log_has "broker-$turn" "goes on after" || fail "it does not go on: $(cat "$TMP/broker-$turn.log")"
# And once more, announced at once.
killed
next 30
found lan "$one"
wait "$(bg_pid flows)" || fail "its bytes: $(cat "$TMP/flows.log"; tail -5 "$TMP/broker-$turn.log")"

# ---- another machine has its name ----
session stays hold
killed
next 30
found lan "$other"
wait_for 20 grep -qE 'ended:|refused' "$TMP/stays.log" || fail "it waits: $(cat "$TMP/stays.log" "$TMP/broker-$turn.log")"
log_has "broker-$turn" "the server does not go on with it" || fail "the log does not say why: $(cat "$TMP/broker-$turn.log")"
! log_has other "session [0-9]* of .*: worker" || fail "another machine has given it a worker"

# ---- nobody announces it ----
killed
next 30
session waits hold
killed
next 2
wait_for 20 grep -q refused "$TMP/waits.log" || fail "it waits: $(cat "$TMP/waits.log" "$TMP/broker-$turn.log")"
grep -q "the restarted gleamd has no server lan, whose worker the program has" "$TMP/waits.log" || fail "why: $(cat "$TMP/waits.log")"
stop_bg "broker-$turn" || fail "gleamd ended with $?: $(tail -5 "$TMP/broker-$turn.log")"
stop_bg one || fail "one ended with $?"
stop_bg other || fail "other ended with $?"
logs_clean
