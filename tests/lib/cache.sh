# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of the weight cache; after tests/lib/soft.sh.
#
#	lab_up LANEM OPTION...	a node and a client daemon with a key, and lanem between them; NODE_OPTIONS and CLIENT_OPTIONS
#	model_make FILE SIZE	a file of random bytes, old enough to be trusted
#	load FILE MODE...	the program `weights` through them: prints its seconds without the context. `sent` tells
#				how many bytes went to the node meanwhile, by the kernel's counters

need_built tests/cuda/weights bin/gleamctl

# An array in the configuration: [cache] lines of both daemons.
lab_conf() { # FILE LINE...
	local file=$1
	shift
	{
		echo '[cache]'
		printf '%s\n' "$@"
	} >"$file"
}

lab_node_start() {
	start_bg node "$lanem" exec B --name "$LAB" -- "$OUT/bin/gleamd" --config "$TMP/node.conf" --socket "$TMP/node.sock" \
		--listen 198.18.0.2:4711 --driver softgpu --no-fuse --key "$TMP/key"
	wait_for 20 log_has node "is ready" || fail "$(cat "$TMP/node.log")"
}

lab_client_start() {
	start_bg client "$lanem" exec A --name "$LAB" -- "$OUT/bin/gleamd" --config "$TMP/client.conf" --socket "$TMP/client.sock" \
		--no-fuse --server lab=198.18.0.2:4711 --key "$TMP/key" --log debug "${CLIENT_OPTIONS[@]}"
	wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
	"$OUT/bin/gleamctl" servers >/dev/null
	wait_for 20 log_has client "link to" || fail "$(cat "$TMP/client.log")"
}

NODE_CACHE=("memory = 512M" "dir = no") CLIENT_CACHE=("dir = no") CLIENT_OPTIONS=()

lab_up() {
	need_root "(network namespaces)"
	[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
	need_built tests/lab/lanem
	lanem=$OUT/tests/lab/lanem
	LAB=cache$$
	"$OUT/bin/gleamctl" key new "$TMP/key" >/dev/null
	start_bg lab "$lanem" up --name "$LAB" "$@"
	wait_for 10 grep -qx ready "$TMP/lab.log" || skip "no lab here: $(tail -n 1 "$TMP/lab.log")"
	lab_conf "$TMP/node.conf" "${NODE_CACHE[@]}"
	lab_conf "$TMP/client.conf" "${CLIENT_CACHE[@]}"
	lab_node_start
	lab_client_start
}

lab_down() {
	soft_down
	stop_bg lab || true
}

model_make() {
	head -c "$2" /dev/urandom >"$1"
	chmod 644 "$1"
}

wire_bytes() { "$lanem" exec A --name "$LAB" -- cat /proc/net/dev | awk '$1 == "gl0:" {print $10}'; }

sent() { cat "$TMP/sent"; }

load() {
	local before
	before=$(wire_bytes)
	program weights "$@" >"$TMP/load.out" 2>&1 || fail "$(cat "$TMP/load.out")"
	# What the node makes of it is told over the link, and the sender's counters are done.
	sleep 0.7
	echo $(($(wire_bytes) - before)) >"$TMP/sent"
	sed -n 's/.* \([0-9.]*\) s without the context.*/\1/p' "$TMP/load.out"
}
