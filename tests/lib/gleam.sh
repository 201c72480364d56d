# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For end-to-end tests with the whole path: two gleamd with a key between them, gleam-worker, the software GPU, and CUDA
# programs with our libcuda.so.1. After tests/lib/e2e.sh.
#
#	path_up [NODE OPTION... [-- BROKER OPTION...]]	both daemons; GLEAM_SOCKET is set; $PORT, logs node and broker
#	cuda PROGRAM ARGS...	a program of tests/cuda, or a path, in the environment of a client
#	path_down		both daemons end by themselves, with nothing to complain about

need_built bin/gleamd bin/gleam-worker lib/libcuda.so.1 lib/libsoftcuda.so

path_up() {
	local node=() broker=()
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		node+=("$1")
		shift
	done
	[ $# = 0 ] || { shift; broker=("$@"); }
	PORT=${PORT:-$(free_port)}
	printf 'gleam-key-1 lab %s %s\n' "$(head -c 8 /dev/urandom | od -An -vtx1 | tr -d ' \n')" \
		"$(head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n')" >"$TMP/key"
	chmod 600 "$TMP/key"
	start_bg node "$OUT/bin/gleamd" --no-fuse --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" \
		--driver "$OUT/lib/libsoftcuda.so" --key "$TMP/key" --log debug "${node[@]}"
	wait_for 15 grep -q 'is warm' "$TMP/node.log" || fail "no warm worker: $(tail -5 "$TMP/node.log")"
	start_bg broker "$OUT/bin/gleamd" --no-fuse --socket "$TMP/gleamd.sock" --server "gpu=127.0.0.1:$PORT" \
		--key "$TMP/key" --log debug "${broker[@]}"
	wait_for 10 grep -q 'is ready' "$TMP/broker.log" || fail "the client's daemon: $(tail -5 "$TMP/broker.log")"
	export GLEAM_SOCKET=$TMP/gleamd.sock
}

cuda() {
	local program=$1
	shift
	[ "${program#/}" != "$program" ] || program=$OUT/tests/cuda/$program
	LD_LIBRARY_PATH=$OUT/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$program" "$@"
}

# Was the library built with a sanitizer? Then only programs built like it can load it.
sanitized() { ldd "$OUT/lib/libcuda.so.1" | grep -qE 'lib(a|t|ub)san'; }

path_down() {
	stop_bg broker || fail "the client's daemon ended with status $?: $(tail -5 "$TMP/broker.log")"
	stop_bg node || fail "the node ended with status $?: $(tail -5 "$TMP/node.log")"
	if grep -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log; then
		fail "a daemon has complained"
	fi
}
