# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For end-to-end tests of gleamd with workers and clients that need no CUDA; after tests/lib/e2e.sh.
#
#	node_up [NAME] [OPTION]...	a node on a free port, in $PORT; log in $TMP/NAME.log
#	broker_up [NAME] [OPTION]...	a client daemon; socket $TMP/NAME.sock
#	client [NAME] COMMAND...	fake-client at that daemon
#	key_make FILE [TENANT]

need_built bin/gleamd tests/fake/fake-worker tests/fake/fake-client
DRIVER=$TMP/driver
: >"$DRIVER"

# A line, key of a tenant, written as `gleamctl key new` would.
key_make() {
	(umask 077 && python3 -c 'import secrets, sys
print("gleam-key-1", sys.argv[1], secrets.token_hex(8), secrets.token_hex(32))' "${2:-lab}" >>"$1")
}

log_has() { grep -q -- "$2" "$TMP/$1.log"; }

node_up() {
	local name=${1:-node}
	shift || true
	PORT=${PORT:-$(free_port)}
	start_bg "$name" "$OUT/bin/gleamd" --socket "$TMP/$name.sock" --listen "127.0.0.1:$PORT" --driver "$DRIVER" \
		--worker "$OUT/tests/fake/fake-worker" --no-fuse --log debug "$@"
	wait_for 10 log_has "$name" "is ready" || fail "$name does not start: $(cat "$TMP/$name.log")"
}

broker_up() {
	local name=${1:-broker}
	shift || true
	start_bg "$name" "$OUT/bin/gleamd" --socket "$TMP/$name.sock" --server "gpu=127.0.0.1:$PORT" --no-fuse \
		--log debug "$@"
	wait_for 10 log_has "$name" "is ready" || fail "$name does not start: $(cat "$TMP/$name.log")"
}

client() {
	local name=$1
	shift
	timeout "$(slow 60)" "$OUT/tests/fake/fake-client" "$TMP/$name.sock" "$@"
}

# Of this test: their driver lies in its folder.
count_workers() { pgrep -c -f "^$OUT/tests/fake/fake-worker .*--driver $TMP/" || true; }

# A sanitizer's report in a daemon's log is a failure, whatever else went well.
logs_clean() {
	local bad
	bad=$(grep -l -E 'ERROR: (Address|Leak|Thread)Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion' "$TMP"/*.log || true)
	[ -z "$bad" ] || fail "a daemon has complained: $(grep -h -A25 -E 'Sanitizer|runtime error:|Assertion' $bad | head -60)"
}

# Both daemons end by themselves on TERM, with status 0.
daemons_down() {
	local name
	for name; do
		stop_bg "$name" || fail "$name ended with status $?: $(tail -5 "$TMP/$name.log")"
	done
	logs_clean
}
