#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 120
# In a private root: after `make install` a program with an empty environment runs on the remote GPU; after
# `make uninstall` it finds what it found before, and the tree is byte for byte as it was.
. "$(dirname "$0")/../lib/e2e.sh"

need_root "(a private root)"
need_cmd unshare ldconfig
need_built bin/gleamd bin/gleam-worker bin/gleamctl lib/libcuda.so.1 lib/libsoftcuda.so
cat >"$TMP/inside" <<'END'
set -Eeuo pipefail
private() { # FOLDER: a copy of it that nobody else sees
	mkdir -p "$TMP/copy"
	mount -t tmpfs none "$TMP/copy"
	cp -a "$1/." "$TMP/copy/"
	mount --move "$TMP/copy" "$1"
}
mount --make-rprivate /
private /etc
mkdir -p /var/cache/ldconfig
private /var/cache/ldconfig
mkdir -p /run/gleam
mount -t tmpfs none /run/gleam
# /usr/local may hold a whole toolkit: only what is ours to make is private, on an empty folder.
mkdir -p "$TMP/prefix"
mount -t tmpfs none "$TMP/prefix"
mkdir "$TMP/prefix/bin" # one that was there before
list() { (cd / && find "${PREFIX#/}" etc -xdev \( -type f -exec sha256sum {} + \) -o -printf '%y %p %l\n' | sort); }
program() { env -i "$OUT/tests/cuda/vecadd" "$@"; }
PREFIX=$TMP/prefix

ldconfig
list >"$TMP/before"
before=0
program >"$TMP/program.before" 2>&1 || before=$?

make -s -C "$TOP" O="$OUT" PREFIX="$PREFIX" install
"$PREFIX/bin/gleamctl" key new "$TMP/key" >/dev/null
"$PREFIX/sbin/gleamd" --no-fuse --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver softgpu --key "$TMP/key" \
	>"$TMP/node.log" 2>&1 &
node=$!
# The machine's own daemon would remember programs in /var/lib.
printf '[scheduler]\nprofiles = no\n' >"$TMP/gleam.conf"
"$PREFIX/sbin/gleamd" --config "$TMP/gleam.conf" --no-fuse --server "gpu=127.0.0.1:$PORT" --key "$TMP/key" >"$TMP/broker.log" 2>&1 &
broker=$!
trap 'kill $node $broker 2>/dev/null || true; wait || true' EXIT
for _ in $(seq 100); do [ -S /run/gleam/gleamd.sock ] && grep -q ready "$TMP/node.log" && break; sleep 0.1; done
program >"$TMP/program.installed" 2>&1 || { echo "installed: $(cat "$TMP/program.installed" "$TMP"/*.log)"; exit 1; }
grep -q '1 passed, 0 failed' "$TMP/program.installed"
# gleamctl run finds the library by itself.
ldconfig_off=$(mktemp)
env -i PATH="$PATH" "$PREFIX/bin/gleamctl" run -- "$OUT/tests/cuda/reduce" >"$ldconfig_off" 2>&1 || { cat "$ldconfig_off"; exit 1; }
rm -f "$ldconfig_off"
kill $node $broker
wait || true
trap - EXIT

make -s -C "$TOP" O="$OUT" PREFIX="$PREFIX" uninstall
after=0
program >"$TMP/program.after" 2>&1 || after=$?
[ "$before" = "$after" ] || { echo "the program ended with $before before and $after after"; exit 1; }
cmp "$TMP/program.before" "$TMP/program.after"
list >"$TMP/after"
diff "$TMP/before" "$TMP/after"
END
export TMP TOP OUT PORT
PORT=$(free_port)
unshare -m bash "$TMP/inside" || fail "see above"
say "installed, used, removed"
