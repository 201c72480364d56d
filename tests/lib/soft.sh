# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For end-to-end tests with the software GPU: a node that offers it and a client daemon; after tests/lib/e2e.sh.
#
#	soft_up [OPTION]...	both daemons, the client one with these options; socket $TMP/client.sock, server `lab`
#	program NAME [ARG]...	a program of tests/cuda through them
#	tree_or_skip		a test that needs FUSE is skipped where there is none

need_built bin/gleamd bin/gleam-worker lib/libcuda.so.1 lib/libsoftcuda.so tests/cuda/vecadd
export GLEAM_SOCKET=$TMP/client.sock

log_has() { grep -q -- "$2" "$TMP/$1.log"; }

node_start() {
	PORT=${PORT:-$(free_port)}
	start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver softgpu --no-fuse
	wait_for 20 log_has node "is ready" || fail "the node does not start: $(cat "$TMP/node.log")"
}

client_start() {
	start_bg client "$OUT/bin/gleamd" --socket "$TMP/client.sock" --server "lab=127.0.0.1:$PORT" "$@"
	wait_for 20 log_has client "is ready" || fail "the client daemon does not start: $(cat "$TMP/client.log")"
}

soft_up() {
	node_start
	client_start "$@"
}

program() {
	local name=$1
	shift
	LD_LIBRARY_PATH=$OUT/lib timeout "$(slow 100)" "$OUT/tests/cuda/$name" "$@"
}

tree_or_skip() {
	[ -e /dev/fuse ] || skip "needs /dev/fuse"
	[ "$(id -u)" = 0 ] || command -v fusermount3 >/dev/null 2>&1 || skip "an ordinary user needs fusermount3"
	"$OUT/bin/gleamd" --help | grep -q -- --mount || skip "gleamd is built without the tree"
	nm "$OUT/bin/gleamd" 2>/dev/null | grep fuse_session_mount >/dev/null || skip "gleamd is built without the tree"
}

# What fuse says of a folder, or nothing.
mounted() { grep -q " $1 .* - fuse.gleam " /proc/self/mountinfo; }

# A sanitizer's report in a daemon's log is a failure, whatever else went well.
soft_down() {
	local name bad
	for name in client node; do
		stop_bg "$name" || fail "$name ended with status $?: $(tail -5 "$TMP/$name.log")"
	done
	bad=$(grep -l -E 'ERROR: (Address|Leak|Thread)Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion' "$TMP"/*.log || true)
	[ -z "$bad" ] || fail "a daemon has complained: $(grep -h -A25 -E 'Sanitizer|runtime error:|Assertion' $bad | head -60)"
}

# lan_up RTT_MS: a node and a client daemon with a key (log names node and client), and lanem's network between them.
lan_up() {
	local lanem=$OUT/tests/lab/lanem lab=lan$$
	need_root "(network namespaces)"
	[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
	start_bg lab "$lanem" up --name $lab --rtt "$1" --rate 1gbit
	wait_for 10 grep -qx ready "$TMP/lab.log"
	"$OUT/bin/gleamctl" key new "$TMP/key" >/dev/null
	start_bg node "$lanem" exec B --name $lab -- "$OUT/bin/gleamd" --no-fuse --socket "$TMP/node.sock" --listen 198.18.0.2:4711 \
		--driver softgpu --key "$TMP/key"
	wait_for 20 log_has node "is ready"
	start_bg client "$lanem" exec A --name $lab -- "$OUT/bin/gleamd" --no-fuse --socket "$TMP/client.sock" \
		--server lab=198.18.0.2:4711 --key "$TMP/key"
	wait_for 20 log_has client "is ready"
}
