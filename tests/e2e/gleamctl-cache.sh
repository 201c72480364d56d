#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 150
# gleamctl cache shows what servers keep, brings a file there before it is loaded, pins, drops and verifies; /gleam has the same
# counters; and what can't be is an error that names it.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built bin/gleamctl tests/cuda/weights
export GLEAM_CACHE=on
model=$TMP/model
head -c 21000000 /dev/urandom >"$model"
printf '[cache]\ndir = %s\n' "$TMP/client" >"$TMP/client.conf"
tree=()
if [ -e /dev/fuse ] && [ "$(id -u)" = 0 ] && nm "$OUT/bin/gleamd" 2>/dev/null | grep -q fuse_session_mount; then
	tree=(--mount "$TMP/gleam")
else
	tree=(--no-fuse)
fi
sleep 2.2
soft_up --config "$TMP/client.conf" "${tree[@]}"
cache() { "$OUT/bin/gleamctl" cache "$@"; }
sent() { "$OUT/bin/gleamctl" servers --json | json servers.0.sent; }
"$OUT/bin/gleamctl" servers >/dev/null
wait_for 10 eval 'cache | grep -q "^lab  *on"' || fail "no cache: $(cache)"
value() { cache --json | json "servers.0.$1"; }

# ---- a file is there before anybody loads it ----
cache prefetch lab "$model" >"$TMP/out"
grep -q '21000000 bytes are there, 21000000 of them were sent' "$TMP/out" || fail "$(cat "$TMP/out")"
cache prefetch lab "$model" >"$TMP/out"
grep -q '21000000 bytes are there, 0 of them were sent' "$TMP/out" || fail "$(cat "$TMP/out")"
same "chunks" 6 "$(cache list lab | wc -l)"
case $(stat -f -c %T "$TMP") in
ext2/ext3 | xfs)
	named() {
		local before
		before=$(sent)
		"$OUT/tests/cuda/weights" "$model" mapped >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
		[ $(($(sent) - before)) -lt 500000 ]
	}
	export LD_LIBRARY_PATH=$OUT/lib
	wait_for 30 named || fail "the first loads of a file that was prefetched send it"
	unset LD_LIBRARY_PATH
	;;
esac
wait_for 5 eval '[ "$(value bytes)" = 21000000 ]' || fail "$(cache)"

# ---- the tree ----
if [ "${tree[0]}" = --mount ]; then
	# What the last load has left to do is counted as it is done.
	both_tell() { [ "$(value "$1")" = "$(cat "$TMP/gleam/$2/$1")" ]; }
	for file in bytes entries hits misses saved evictions; do
		for folder in servers/lab/cache cache; do
			wait_for 10 both_tell "$file" "$folder" ||
				fail "/gleam/$folder/$file has $(cat "$TMP/gleam/$folder/$file"), gleamctl $(value "$file")"
		done
	done
fi

# ---- pin, drop, verify ----
cache verify lab all
one=$(cache list lab | head -1 | cut -d ' ' -f 1)
cache verify lab "$one"
cache pin lab "$one"
same "dropped" "5 dropped" "$(cache drop lab all)"
wait_for 5 eval '[ "$(cache list lab | wc -l)" = 1 ]' || fail "$(cache list lab)"
cache unpin lab "$one"
same "dropped" "1 dropped" "$(cache drop lab "$one")"
wait_for 5 eval '[ "$(cache list lab | wc -l)" = 0 ]' || fail "$(cache list lab)"
program weights "$model" mapped >/dev/null
program weights "$model" heap >/dev/null

# ---- what can't be ----
refused() { # STATUS TEXT ARGUMENTS...
	local status=$1 text=$2
	shift 2
	same "status of cache $*" "$status" "$(status_of "$OUT/bin/gleamctl" cache "$@")"
	grep -qF -- "$text" "$TMP/status.out" || fail "cache $*: $(cat "$TMP/status.out")"
}
nobody=0123456789abcdef0123456789abcdef
for what in pin unpin drop verify; do
	refused 1 "$nobody" $what lab $nobody
	refused 1 "no such server" $what elsewhere $nobody
	refused 1 "32 hexadecimal digits" $what lab xyz
	refused 2 "takes the name of a server" $what lab
done
refused 1 "$TMP/nothing: No such file" prefetch lab "$TMP/nothing"
refused 1 "$TMP was not prefetched" prefetch lab "$TMP"
refused 1 "no such server" prefetch elsewhere "$model"
refused 1 "no such server" list elsewhere
refused 2 "none of list, pin" mend lab
# Its link goes while a file is on its way: the command ends, with the reason.
head -c 200000000 /dev/zero | tr '\0' 'x' >"$TMP/big"
cache prefetch lab "$TMP/big" >"$TMP/prefetch.out" 2>&1 &
pid=$!
sleep 0.2
stop_bg node KILL 2>/dev/null || true
status=0
wait $pid || status=$?
[ "$status" = 0 ] || grep -q "$TMP/big" "$TMP/prefetch.out" || fail "$(cat "$TMP/prefetch.out")"
node_start
wait_for 20 eval 'cache | grep -q "^lab  *on"' || fail "no cache again"
refused 1 "$nobody" verify lab $nobody
soft_down

# ---- a program on its own machine's GPU shares memory with the worker: its bytes are there anyway ----
PORT=$(free_port)
start_bg both "$OUT/bin/gleamd" --socket "$TMP/both.sock" --listen "127.0.0.1:$PORT" --server "lab=127.0.0.1:$PORT" --driver softgpu \
	--no-fuse
wait_for 20 log_has both "is ready" || fail "$(cat "$TMP/both.log")"
export GLEAM_SOCKET=$TMP/both.sock
wait_for 10 eval 'cache | grep -q "^lab  *on"' || fail "no cache: $(cache)"
cache prefetch lab "$model" >/dev/null
program weights "$model" mapped >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
program weights "$model" mapped >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
stop_bg both
