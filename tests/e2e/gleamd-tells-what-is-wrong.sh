#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts that can't work end at once with one line that says what, why and what to do: status 1, or 2 for the command line.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

GLEAMD=$OUT/bin/gleamd
DO=(--no-fuse --socket "$TMP/x.sock")

# try STATUS TEXT OPTION...: the last line has the text.
try() {
	local expected=$1 text=$2 status=0 out
	shift 2
	out=$(timeout "$(slow 10)" "$GLEAMD" "$@" 2>&1) || status=$?
	[ "$status" = "$expected" ] || fail "gleamd $*: status $status, expected $expected: $out"
	case $(tail -1 <<<"$out") in *"$text"*) ;; *) fail "gleamd $*: no word of '$text' in: $out" ;; esac
}

try 2 "unrecognized option" --nonsense
try 2 "not an option" extra
try 2 "NAME=ADDRESS:PORT" --server gpu
try 2 "number from 1 to 16" --lanes 17
try 2 "not a number" --warm -1
try 2 "error, warn, info or debug" --log loud
try 0 "gleamd" --version
try 0 "--help, --version" --help

conf() { printf "$1" >"$TMP/conf"; }
conf '[daemon]\nsocket = /tmp/x\nnonsense = 1\n'
try 1 "conf:3: there is no setting" --config "$TMP/conf"
conf '[node]\n\n\nwarm = many\n'
try 1 "conf:4: \`many\` is not a number" --config "$TMP/conf"
conf '[daemon\n'
try 1 "conf:1: not a setting" --config "$TMP/conf"
conf 'socket\n'
try 1 "conf:1: not a setting" --config "$TMP/conf"
python3 -c 'print("[daemon]\nsocket = " + "x" * 300)' >"$TMP/conf"
try 1 "conf:2: the line has more" --config "$TMP/conf"
head -c 3000 /dev/urandom >"$TMP/conf"
try 1 "conf" --config "$TMP/conf"
try 1 "No such file" --config "$TMP/none"
try 1 "directory" --config "$TMP"

# Addresses and keys of a node.
W=(--worker "$OUT/tests/fake/fake-worker" --driver "$DRIVER")
try 1 "without a key" "${DO[@]}" "${W[@]}" --listen 0.0.0.0:4711
try 1 "without a key" "${DO[@]}" "${W[@]}" --listen "[::]:4711"
try 1 "is not an address" "${DO[@]}" "${W[@]}" --listen "host:port"
port=$(free_port)
start_bg holder python3 -c "import socket, time
s = socket.socket(); s.bind(('127.0.0.1', $port)); s.listen(); time.sleep(60)"
wait_for 5 eval "(exec 3<>/dev/tcp/127.0.0.1/$port)" || fail "nobody holds the port"
try 1 "another process has this port" "${DO[@]}" "${W[@]}" --listen "127.0.0.1:$port"
try 1 "can't be run" "${DO[@]}" --listen "127.0.0.1:$(free_port)" --worker /nonexistent --driver "$DRIVER"
try 1 "can't be read" "${DO[@]}" --listen "127.0.0.1:$(free_port)" --worker "$OUT/tests/fake/fake-worker" --driver /nonexistent
key_make "$TMP/key"
chmod 644 "$TMP/key"
try 1 "chmod 600" "${DO[@]}" --key "$TMP/key"
chmod 600 "$TMP/key"
echo "gleam-key-1 lab short" >>"$TMP/key"
try 1 "key:2: not a key" "${DO[@]}" --key "$TMP/key"
try 1 "can't read the key" "${DO[@]}" --key "$TMP/nokey"

# The socket: a folder that isn't there, a file in its place, a live daemon; a dead one's is replaced.
try 1 "its folder exists" --no-fuse --socket "$TMP/no/where.sock"
: >"$TMP/file"
try 1 "is not a socket" --no-fuse --socket "$TMP/file"
start_bg live "$GLEAMD" --no-fuse --socket "$TMP/live.sock"
wait_for 5 log_has live "is ready" || fail "no daemon"
try 1 "another gleamd serves" --no-fuse --socket "$TMP/live.sock"
kill -KILL "$(bg_pid live)"
wait_for 5 eval "! kill -0 $(bg_pid live)"
[ -S "$TMP/live.sock" ] || fail "a killed daemon leaves its socket"
start_bg again "$GLEAMD" --no-fuse --socket "$TMP/live.sock"
wait_for 5 log_has again "is ready" || fail "a stale socket is in the way: $(cat "$TMP/again.log")"
daemons_down again
[ ! -e "$TMP/live.sock" ] || fail "the socket is still there after the end"

# No servers, no such server: within three seconds, with what to do.
start_bg alone "$GLEAMD" --no-fuse --socket "$TMP/alone.sock"
wait_for 5 log_has alone "is ready"
out=$(client alone try) && fail "served by nobody"
case $out in "refused 5: "*"--server NAME"*) ;; *) fail "unhelpful: $out" ;; esac
out=$(FAKE_SETTINGS="GLEAM_SERVER=moon" client alone try) && fail "served by the moon"
case $out in "refused 5: GLEAM_SERVER=moon"*) ;; *) fail "unhelpful: $out" ;; esac
daemons_down alone
