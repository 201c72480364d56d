#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# After kill -9 the mount is dead and the next gleamd clears it away, with readers inside. What is in the way otherwise is
# told and left alone, and the daemon serves without a tree.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

tree_or_skip
g=$TMP/gleam
PORT=$(free_port)
daemon() {
	local name=$1
	shift
	start_bg "$name" "$OUT/bin/gleamd" --socket "$TMP/$name.sock" --server "lab=127.0.0.1:$PORT" "$@"
	wait_for 10 log_has "$name" "is ready" || fail "$name does not start: $(cat "$TMP/$name.log")"
}

daemon one --mount "$g"
same "servers" lab "$(ls "$g/servers")"
exec 7<"$g/version"
start_bg inside sh -c "cd $g/servers && exec sleep 60"
wait_for 5 eval "[ \$(readlink /proc/$BG_PID/cwd) = $g/servers ]"
kill -KILL "$(bg_pid one)"
wait "$(bg_pid one)" 2>/dev/null || true
wait_for 5 eval "! cat $g/version" || fail "the mount still answers"
same "reading a dead mount" 1 "$(status_of cat "$g/version")"
grep -q "Transport endpoint" "$TMP/status.out" || fail "the mount is not dead: $(cat "$TMP/status.out")"
mounted "$g" || fail "the mount is gone by itself"
! timeout "$(slow 5)" cat <&7 2>/dev/null || fail "a reader inside got something"

daemon two --mount "$g"
log_has two "was left behind by a daemon that is gone: unmounted" || fail "no word of the dead mount: $(cat "$TMP/two.log")"
grep -q "^[0-9]" "$g/version" || fail "the new tree can't be read"
same "mounts" 1 "$(grep -c " $g .* fuse.gleam " /proc/self/mountinfo)"
exec 7<&-
stop_bg inside || true

# Another daemon that lives is left alone.
daemon three --mount "$g"
log_has three "another gleamd shows its tree there; stop it, or choose another folder with --mount DIR" ||
	fail "no word of the other daemon: $(cat "$TMP/three.log")"
# Also when it doesn't answer: nobody hangs.
kill -STOP "$(bg_pid two)"
daemon four --mount "$g"
log_has four "does not answer" || fail "no word of the daemon that hangs: $(cat "$TMP/four.log")"
kill -CONT "$(bg_pid two)"
cat "$g/version" >/dev/null

# Nobody's files are hidden.
mkdir "$TMP/full"
: >"$TMP/full/file"
daemon five --mount "$TMP/full"
log_has five "not empty; choose an empty folder" || fail "no word of the files: $(cat "$TMP/five.log")"
daemon six --mount "$TMP/full/file"
log_has six "Not a directory" || fail "no word of the file: $(cat "$TMP/six.log")"
daemon seven --mount "$TMP/nowhere/gleam"
log_has seven "No such file" || fail "no word of the missing folder: $(cat "$TMP/seven.log")"
daemon eight --no-fuse
! log_has eight tree || fail "--no-fuse: $(cat "$TMP/eight.log")"

# Somebody else unmounts it: the daemon serves on.
mkdir "$TMP/other"
daemon nine --mount "$TMP/other/"
mounted "$TMP/other" || fail "not mounted on a folder that was there"
if [ "$(id -u)" = 0 ]; then umount "$TMP/other"; else fusermount3 -u "$TMP/other"; fi
wait_for 5 log_has nine "has been unmounted" || fail "it does not notice the unmount: $(cat "$TMP/nine.log")"
alive "$(bg_pid nine)" || fail "it ended with its tree"

for name in nine eight seven six five four three two; do
	stop_bg "$name" || fail "$name ended with status $?: $(tail -5 "$TMP/$name.log")"
done
! mounted "$g" || fail "still mounted"
[ -d "$TMP/other" ] || fail "a folder that was there before is gone"
[ -e "$TMP/full/file" ] || fail "a file is gone"
! grep -l -E 'Sanitizer|runtime error:|Assertion' "$TMP"/*.log || fail "a daemon has complained"
