#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Servers that Avahi announces are used, come and go, and take no place of a configured one; strangers without the key get no link; a
# server that joins and leaves every second gets no programs. Avahi's programs are played by scripts that say the same lines.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

key_make "$TMP/key"
key_make "$TMP/other" stranger
mkdir "$TMP/bin"
mkfifo "$TMP/lines"
# As avahi-browse: stays, and prints what happens. And as avahi-publish-service: stays.
printf '#!/bin/sh\necho "$*" >%s/browse.args\nexec cat <>%s/lines\n' "$TMP" "$TMP" >"$TMP/bin/avahi-browse"
printf '#!/bin/sh\necho "$*" >%s/publish.args\nexec sleep 1000\n' "$TMP" >"$TMP/bin/avahi-publish-service"
chmod +x "$TMP/bin"/*
says() { printf '%s\n' "$1" >"$TMP/lines"; }
found() { says "=;lo;IPv4;$1;_gleam._tcp;local;host.local;127.0.0.1;$2;"; }

printf '[scheduler]\ndiscover = yes\n' >"$TMP/discover.conf"
PORT=$(free_port) && node_up one --key "$TMP/key"
one=$PORT
PORT=$(free_port) && node_up two --key "$TMP/key"
two=$PORT
PORT=$(free_port) && node_up stranger --key "$TMP/other"
stranger=$PORT
PATH=$TMP/bin:$PATH start_bg broker "$OUT/bin/gleamd" --socket "$TMP/broker.sock" --server "fixed=127.0.0.1:$one" --no-fuse --log debug \
	--config "$TMP/discover.conf" --key "$TMP/key" --listen "0.0.0.0:$(free_port)" --driver "$DRIVER" --worker "$OUT/tests/fake/fake-worker"
wait_for 10 log_has broker "is ready" || fail "$(cat "$TMP/broker.log")"
wait_for 10 grep -q "_gleam._tcp" "$TMP/browse.args"
wait_for 10 grep -qE "^[^ ]+ _gleam._tcp [0-9]+$" "$TMP/publish.args"
state_of() { client broker ask '{"cmd":"servers"}' | python3 -c '
import json, sys
print(*[s["state"] for s in json.load(sys.stdin)["servers"] if s["name"] == sys.argv[1]])' "$1"; }
count() { client broker ask '{"cmd":"servers"}' | json servers | grep -o '"name"' | wc -l; }

# One that is found is used. Noise is not.
says 'nonsense'
says '=;lo;IPv4;web;_http._tcp;local;h;127.0.0.1;80;'
found two "$two"
wait_for 10 eval '[ "$(state_of two)" = ready ]' || fail "not used: $(client broker ask '{"cmd":"servers"}')"
same "servers" 2 "$(count)"
same "a client there" two "$(FAKE_SETTINGS=GLEAM_SERVER=two client broker try)"
# What is configured stays what it is, by name and by address.
found fixed "$stranger"
found "another name" "$one"
# A stranger has no key of ours.
found bad "$stranger"
wait_for 10 eval '[ "$(state_of bad)" = unreachable ]' || fail "the stranger: $(state_of bad)"
same "servers" 3 "$(count)"
same "the configured one" "127.0.0.1:$one" "$(client broker ask '{"cmd":"servers"}' | json servers.0.address)"
wait_for 10 eval '[ "$(state_of fixed)" = ready ]'

# It moves to another port, is announced there, and is used again.
says '-;lo;IPv4;two;_gleam._tcp;local'
wait_for 5 log_has broker "two is not announced any more"
stop_bg two || fail "two ended with $?"
wait_for 10 eval '[ "$(state_of two)" = unreachable ]'
PORT=$(free_port) && node_up three --key "$TMP/key"
found two "$PORT"
wait_for 10 eval '[ "$(state_of two)" = ready ]' || fail "not found again: $(client broker ask '{"cmd":"servers"}')"

# Now it comes and goes: after some times nobody is sent there, though it is up at that moment.
for turn in 1 2 3; do
	stop_bg three || true
	wait_for 10 eval '[ "$(state_of two)" = unreachable ]'
	node_up three --key "$TMP/key"
	found two "$PORT"
	wait_for 10 eval '[ "$(state_of two)" = ready ]'
done
for turn in 1 2 3 4 5 6; do same "where a client goes" fixed "$(client broker try)"; done
same "who asks for it by name gets it all the same" two "$(FAKE_SETTINGS=GLEAM_SERVER=two client broker try)"
stop_bg broker || fail "the broker ended with $?: $(tail -5 "$TMP/broker.log")"
logs_clean
