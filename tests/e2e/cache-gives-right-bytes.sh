#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 240
# Whatever happens to files, buffers and disks, a program's copies have the bytes that were in its memory: files that change between loads
# in every way a program can change them, pages that are the program's own, many clients at once, a full disk, a disk that
# flips bits.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

export GLEAM_CACHE=on
model=$TMP/model
right() { program weights "$@" >"$TMP/out" 2>&1 || fail "$*: $(cat "$TMP/out")"; }
sent() { "$OUT/bin/gleamctl" servers --json | json servers.0.sent; }
# Bytes to the node that a load costs.
cost() {
	local before
	before=$(sent)
	right "$@"
	echo $(($(sent) - before))
}
settle() { sleep "${1:-2.3}"; }

printf '[cache]\nmemory = 256M\ndisk = 300M\ndir = %s\n' "$TMP/node" >"$TMP/node.conf"
printf '[cache]\ndir = %s\n' "$TMP/client" >"$TMP/client.conf"
node_start() {
	PORT=${PORT:-$(free_port)}
	start_bg node "$OUT/bin/gleamd" --config "$TMP/node.conf" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" \
		--driver softgpu --no-fuse
	wait_for 20 log_has node "is ready" || fail "$(cat "$TMP/node.log")"
}
soft_up --config "$TMP/client.conf" --no-fuse --log debug
"$OUT/bin/gleamctl" servers >/dev/null
wait_for 10 log_has client "link to"

# ---- files ----
head -c 20000000 /dev/urandom >"$model"
settle
right "$model" mapped
settle 1.5
case $(stat -f -c %T "$TMP") in
ext2/ext3 | xfs)
	known=1
	wait_for 20 eval '[ "$(cost "$model" mapped)" -lt 1000000 ]' || fail "a mapped file travels again and again"
	between "bytes for the half of each tensor" 0 "$(cost "$model" slice)" 500000
	between "bytes for a shared mapping" 0 "$(cost "$model" shared)" 500000
	;;
*) known=0 ;;
esac
right "$model" private
# In place, its times put back.
cp --preserve=all "$model" "$TMP/reference"
printf 'changed' | dd of="$model" bs=1 seek=7000000 conv=notrunc status=none
touch -r "$TMP/reference" "$model"
right "$model" mapped
cmp -s "$model" "$TMP/reference" && fail "the file did not change"
right "$model" mapped
# Another file under its name, of the same size and time.
head -c 20000000 /dev/urandom >"$TMP/new"
touch -r "$model" "$TMP/new"
mv "$TMP/new" "$model"
right "$model" mapped
# Shorter, then as long again.
truncate -s 9000000 "$model"
right "$model" mapped
truncate -s 20000000 "$model"
right "$model" mapped
# By a mapping that another process holds, written to between loads without any call.
settle
right "$model" mapped
python3 - "$model" "$TMP/go" <<'PY' &
import mmap, os, sys, time
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
for turn in range(6):
    while not os.path.exists(sys.argv[2] + str(turn)):
        time.sleep(0.01)
    for at in range(0, len(m), 1 << 20):
        m[at:at + 8] = os.urandom(8)
    os.rename(sys.argv[2] + str(turn), sys.argv[2] + "-done")
PY
writer=$!
for turn in 0 1 2 3 4 5; do
	rm -f "$TMP/go-done"
	touch "$TMP/go$turn"
	wait_for 10 test -e "$TMP/go-done"
	right "$model" mapped
	[ $turn != 2 ] || settle
done
wait $writer
settle
right "$model" mapped
right "$model" mapped
# Memory that changes between copies, and right after them.
right "$model" changing

# ---- many at once ----
head -c 12000000 /dev/urandom >"$TMP/other"
settle
pids=()
for i in $(seq 10); do
	mode=mapped
	[ $((i % 2)) = 0 ] || mode=heap
	program weights "$TMP/other" $mode >"$TMP/many$i.out" 2>&1 &
	pids+=($!)
done
for i in $(seq 10); do
	wait "${pids[i - 1]}" || fail "client $i of ten: $(cat "$TMP/many$i.out")"
done

# ---- a disk that flips bits, and files that are cut ----
wait_for 20 eval '[ "$(ls "$TMP"/node/store/*/ | wc -l)" -gt 3 ]' || fail "nothing is on disk"
settle 1.5
stop_bg node
python3 - "$TMP/node/store" <<'PY'
import os, sys
turn = 0
for folder, _, names in os.walk(sys.argv[1]):
    for name in sorted(names):
        path = os.path.join(folder, name)
        size = os.path.getsize(path)
        if len(name) < 65 or size < 100:
            continue
        with open(path, "r+b") as f:
            turn += 1
            if turn % 3 == 0:
                f.truncate(size // 2)
            elif turn % 3 == 1:
                f.seek(size // 3)
                byte = f.read(1)[0]
                f.seek(size // 3)
                f.write(bytes([byte ^ 0x10]))
PY
node_start
wait_for 20 eval '"$OUT/bin/gleamctl" servers | grep -q ready'
right "$TMP/other" mapped
right "$TMP/other" heap
right "$model" mapped
log_has node "is damaged on disk" || fail "nobody noticed the damage"

# ---- a full disk ----
if [ "$(id -u)" = 0 ]; then
	stop_bg node
	mkdir "$TMP/small"
	mount -t tmpfs -o size=9M none "$TMP/small"
	cleanup() { umount -l "$TMP/small" 2>/dev/null || true; }
	sed -i "s#^dir.*#dir = $TMP/small#" "$TMP/node.conf"
	node_start
	wait_for 20 eval '"$OUT/bin/gleamctl" servers | grep -q ready'
	right "$model" mapped
	right "$model" mapped
	wait_for 20 log_has node "can't write to" || fail "the disk was not full"
	right "$model" heap
	right "$model" mapped
	say "full disk: $(grep -m1 -o "can't write to.*" "$TMP/node.log")"
fi
say "files are told by what they are: $known"
soft_down
