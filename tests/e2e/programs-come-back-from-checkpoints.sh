#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# time-limit: 240
# The server of programs with a checkpoint is killed: they are held, and go on elsewhere from the file with the same results, bit for bit; one that
# has gone on since the checkpoint as well, twice. What it has seen isn't contradicted: a program that computes something else the second time, or
# whose work can't be done again, ends. Files that are cut off, changed, of another version or another program are refused, and the
# program stays held; nobody else may read what is in them.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/gleam.sh"
need_built bin/gleamctl tests/cuda/checksum tests/cuda/carried tests/cuda/train

export GLEAM_SOFTGPU_MEMORY=512M
PORT=$(free_port) B_PORT=$(free_port) NONE_PORT=$(free_port)
node_up() { # NAME PORT
	start_bg "$1" "$OUT/bin/gleamd" --no-fuse --socket "$TMP/$1.sock" --listen "127.0.0.1:$2" --driver "$OUT/lib/libsoftcuda.so" \
		--key "$TMP/key" --log debug
	wait_for 15 grep -q 'is warm' "$TMP/$1.log" || fail "no warm worker: $(tail -5 "$TMP/$1.log")"
}
printf '[link]\ngrace = 1\nhold = 60\n[key]\nfile = %s\n[servers]\ngpu = 127.0.0.1:%d\nb = 127.0.0.1:%d\nnone = 127.0.0.1:%d\n' \
	"$TMP/key" "$PORT" "$B_PORT" "$NONE_PORT" \
	>"$TMP/broker.conf"
path_up -- --config "$TMP/broker.conf"
node_up b "$B_PORT"
ctl() { "$OUT/bin/gleamctl" "$@" --socket "$TMP/gleamd.sock"; }
state_of() { # PID
	ctl clients --json | python3 -c 'import json, sys
print([c["state"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])][0])' "$1"
}
is_state() { [ "$(state_of "$1")" = "$2" ]; }
# refused WHY ARGUMENT...
refused() {
	local why=$1
	shift
	same "status of gleamctl $*" 1 "$(status_of ctl "$@")"
	grep -q -- "$why" "$TMP/status.out" || fail "$*: $(cat "$TMP/status.out")"
}
# start NAME PROGRAM ARGUMENT...: on the server gpu
start() {
	local name=$1
	shift
	start_bg "$name" env GLEAM_SERVER=gpu LD_LIBRARY_PATH="$OUT/lib" "$OUT/tests/cuda/$1" "${@:2}"
}
right() { # NAME
	wait "$(bg_pid "$1")" || fail "$1: $(grep -E 'wrong|failed|CUDA_ERROR' "$TMP/$1.log" | head -5)"
	grep -q '^[1-9][0-9]* passed, 0 failed' "$TMP/$1.log" || fail "$1: $(tail -3 "$TMP/$1.log")"
}

# ---- wrong wishes ----
same "usage" 2 "$(status_of ctl checkpoint)"
same "usage" 2 "$(status_of ctl checkpoint x "$TMP/c")"
same "usage" 2 "$(status_of ctl checkpoint 1 "$TMP/c" --every 0)"
same "usage" 2 "$(status_of ctl restore 1)"
refused "no program of yours" checkpoint 999999 "$TMP/c"
[ ! -e "$TMP/c/checkpoint" ] && [ ! -e "$TMP/c/checkpoint.new" ] || fail "a file is left of a checkpoint that there isn't"
mkdir -m 777 "$TMP/open"
refused "others may write there" checkpoint 999999 "$TMP/open"

# ---- programs that pause: all they have, and much beside a model on the CPU ----
cuda carried 300 7 >"$TMP/still.out" || fail "$(grep -v ^block "$TMP/still.out" | tail -3)"
export CARRIED_SAFE=1 CARRIED_QUIET=1
steps=3000
# Thousands of answers are awaited, each by several sleepers in turn: before there is a program that lets nobody else have a core.
cuda carried $steps 5 >"$TMP/still-on.out" || fail "$(tail -3 "$TMP/still-on.out")"
unset CARRIED_SAFE CARRIED_QUIET
start pauses carried 300 7 "$TMP/go" "$TMP/pause"
start other carried 300 8 "$TMP/go" "$TMP/pause"
start busy checksum 10 2 0 "$TMP/enough"
export CARRIED_SAFE=1 CARRIED_QUIET=1
start goes carried $steps 5 "$TMP/there" "$TMP/on-there"
unset CARRIED_SAFE CARRIED_QUIET
# Host functions beside all sorts of work: none is lost, and none runs twice.
CHECKSUM_UNMAPPED=1 start calls checksum 10 6 40 "$TMP/called"
touch "$TMP/there"
start clock carried clock "$TMP/enough"
cuda train 200 - 8 1 >"$TMP/still-train.out" || fail "$(tail -3 "$TMP/still-train.out")"
start train train 200 "$TMP/trained" 8 1
for name in pauses other; do
	wait_for 30 grep -q '^step: it pauses' "$TMP/$name.log" || fail "$name does not pause: $(tail -3 "$TMP/$name.log")"
done
for name in busy goes clock train calls; do
	wait_for 30 grep -qE '^(step|loss 9 )' "$TMP/$name.log" || fail "$name does not start"
done
pid=$(bg_pid pauses)
# A disk that is full: said, nothing left, and the program goes on.
mkdir -m 700 "$TMP/small"
if [ "$(id -u)" = 0 ] && unshare -m mount -t tmpfs -o size=256k none "$TMP/small" 2>/dev/null; then
	# shellcheck disable=SC2016 # the shell inside looks at its own words
	same "a full disk" 1 "$(status_of unshare -m sh -c 'mount -t tmpfs -o size=256k,mode=700 none "$1"
		"$2" checkpoint "$3" "$1" --socket "$4"
		status=$?
		[ -z "$(ls -A "$1")" ] || echo "left: $(ls -A "$1")"
		exit $status' sh "$TMP/small" "$OUT/bin/gleamctl" "$pid" "$TMP/gleamd.sock")"
	grep -q 'No space left' "$TMP/status.out" || fail "a full disk: $(cat "$TMP/status.out")"
	grep -q 'left:' "$TMP/status.out" && fail "a full disk: $(cat "$TMP/status.out")"
fi
ctl checkpoint "$pid" "$TMP/c" >"$TMP/ctl.out" || fail "$(cat "$TMP/ctl.out")"
say "$(cat "$TMP/ctl.out")"
same "mode of the file" 600 "$(stat -c %a "$TMP/c/checkpoint")"
same "mode of the folder" 700 "$(stat -c %a "$TMP/c")"
[ ! -e "$TMP/c/checkpoint.new" ] || fail "the temporary file is left"
ctl checkpoint "$(bg_pid other)" "$TMP/other" --json >"$TMP/ctl.json" || fail "$(cat "$TMP/ctl.json")"
python3 "$TOP/tests/lib/schema.py" "$TOP/docs/json/gleamctl.schema.json" checkpoint "$TMP/ctl.json" || fail "$(cat "$TMP/ctl.json")"
for name in busy goes clock train calls; do
	ctl checkpoint "$(bg_pid $name)" "$TMP/$name.d" >"$TMP/ctl.out" || fail "$name: $(cat "$TMP/ctl.out")"
done
cp -r "$TMP/train.d" "$TMP/older.d"
told() { grep -c '^loss' "$TMP/train.log"; }
so_far=$(told)
goes_on() { [ "$(told)" -gt "$so_far" ]; }
wait_for 20 goes_on
ctl checkpoint "$(bg_pid train)" "$TMP/train.d" >"$TMP/ctl.out" || fail "train: $(cat "$TMP/ctl.out")"
refused "needs no checkpoint" restore "$pid" "$TMP/c" b
# Again and again, where anything has changed: not here.
start_bg every "$OUT/bin/gleamctl" checkpoint "$pid" "$TMP/c" --every 1 --socket "$TMP/gleamd.sock"
wait_for 10 grep -q '^checkpoint of' "$TMP/every.log"
inode=$(stat -c %i "$TMP/c/checkpoint")
sleep 2.5
same "another checkpoint of a program that does nothing" "$inode" "$(stat -c %i "$TMP/c/checkpoint")"
stop_bg every INT || fail "gleamctl checkpoint --every ended with status $?"

# ---- its server is gone for good ----
stop_bg node KILL || true
wait_for 10 is_state "$pid" held || fail "it is not held: $(state_of "$pid")"
# Host functions and mapped memory aren't done again: such a program ends as without a checkpoint.
wait "$(bg_pid busy)" && fail "a program that has gone on since its checkpoint lives"
grep -q 'CUDA_ERROR_DEVICE_UNAVAILABLE' "$TMP/busy.log" || fail "busy: $(tail -3 "$TMP/busy.log")"
grep -q "pid $(bg_pid busy) .*can't be restored: \(it has used host functions\|kernels have written to page-locked memory of the program\) since" "$TMP/broker.log" || fail "nothing is said of busy"
refused "no program of yours" restore "$(bg_pid busy)" "$TMP/busy.d" b
is_state "$(bg_pid goes)" held || fail "goes is $(state_of "$(bg_pid goes)")"
refused "has a newer checkpoint" restore "$(bg_pid train)" "$TMP/older.d" b
refused "it computes something else than the program has seen" restore "$(bg_pid clock)" "$TMP/clock.d" b
is_state "$(bg_pid clock)" held || fail "clock is $(state_of "$(bg_pid clock)")"
ctl restore "$(bg_pid goes)" "$TMP/goes.d" b >"$TMP/ctl.out" || fail "$(cat "$TMP/ctl.out")"
say "$(cat "$TMP/ctl.out"); $(grep -c '' "$TMP/goes.log") steps were told"
is_state "$(bg_pid goes)" live || fail "goes is $(state_of "$(bg_pid goes)")"
# In the middle of its steps.
ctl restore "$(bg_pid calls)" "$TMP/calls.d" b >"$TMP/ctl.out" || fail "$(cat "$TMP/ctl.out")"
say "$(cat "$TMP/ctl.out")"
steps_of_calls=$(grep -c step "$TMP/calls.log")
wait_for 20 eval '[ $(grep -c step "$TMP/calls.log") -gt '"$steps_of_calls"' ]' || fail "calls does not go on: $(tail -3 "$TMP/calls.log")"
touch "$TMP/called"
right calls
ctl restore "$(bg_pid train)" "$TMP/train.d" b >"$TMP/ctl.out" || fail "$(cat "$TMP/ctl.out")"
touch "$TMP/trained"
right train
same "losses of the program that went on" "$(grep '^loss' "$TMP/still-train.out")" "$(grep -m 200 '^loss' "$TMP/train.log")"

# ---- files that are none: refused, and it stays held ----
mkdir -m 700 "$TMP/bad"
bad() { # WHY
	chmod 600 "$TMP/bad/checkpoint"
	refused "$1" restore "$pid" "$TMP/bad" b
	is_state "$pid" held || fail "it is $(state_of "$pid") after a checkpoint that was refused ($1)"
}
refused "No such file" restore "$pid" "$TMP/bad" b
head -c 100000 "$TMP/c/checkpoint" >"$TMP/bad/checkpoint"
bad "it is cut off"
head -c -1 "$TMP/c/checkpoint" >"$TMP/bad/checkpoint"
bad "it is cut off"
: >"$TMP/bad/checkpoint"
bad "it is cut off"
(cat "$TMP/c/checkpoint" && echo) >"$TMP/bad/checkpoint"
bad "it is damaged"
change() { # OFFSET: one byte
	cp "$TMP/c/checkpoint" "$TMP/bad/checkpoint"
	printf '\xa5' | dd of="$TMP/bad/checkpoint" bs=1 seek="$1" conv=notrunc status=none
}
change 200000
bad "it is damaged"
change 0
bad "it is no checkpoint"
change 8
bad "it is of version 165 of the format"
change 20
bad "made by another version of Gleam"
cp "$TMP/other/checkpoint" "$TMP/bad/checkpoint"
bad "it\|the checkpoint is of another session (pid $(bg_pid other)"
refused "there is no server" restore "$pid" "$TMP/c" nowhere
refused "none can't be reached" restore "$pid" "$TMP/c" none
is_state "$pid" held || fail "it is $(state_of "$pid") after a server that isn't there"
refused "has 1 GPU, numbered from 0" restore "$pid" "$TMP/c" b:7
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	same "another user reads it" 1 "$(status_of setpriv --reuid 65533 --regid 65533 --clear-groups cat "$TMP/c/checkpoint")"
fi

# ---- and it goes on ----
ctl restore "$pid" "$TMP/c" b >"$TMP/ctl.out" || fail "$(cat "$TMP/ctl.out")"
say "$(cat "$TMP/ctl.out")"
is_state "$pid" live || fail "it is $(state_of "$pid") after the restore"
refused "needs no checkpoint" restore "$pid" "$TMP/c" b
ctl restore "$(bg_pid other)" "$TMP/other" --json >"$TMP/ctl.json" || fail "$(cat "$TMP/ctl.json")"
python3 "$TOP/tests/lib/schema.py" "$TOP/docs/json/gleamctl.schema.json" restore "$TMP/ctl.json" || fail "$(cat "$TMP/ctl.json")"
touch "$TMP/pause" "$TMP/go"
right pauses
right other
same "results of the program that was restored" "$(grep -E '^(block|checksum)' "$TMP/still.out")" \
	"$(grep -E '^(block|checksum)' "$TMP/pauses.log")"

# ---- a server that was started again knows nothing of it; one that goes on before its server is lost ----
node_up node "$PORT"
start again carried 300 9 "$TMP/go" "$TMP/again"
start on carried 300 10 "$TMP/go" "$TMP/on"
for name in again on; do
	wait_for 30 grep -q '^step: it pauses' "$TMP/$name.log" || fail "$name does not pause: $(tail -3 "$TMP/$name.log")"
	ctl checkpoint "$(bg_pid $name)" "$TMP/$name.d" >/dev/null || fail "no checkpoint of $name"
done
touch "$TMP/on"
right on
stop_bg node KILL || true
node_up node "$PORT"
pid=$(bg_pid again)
wait_for 10 is_state "$pid" held || fail "it is not held: $(state_of "$pid")"
ctl restore "$pid" "$TMP/again.d" gpu:0 >"$TMP/ctl.out" || fail "$(cat "$TMP/ctl.out")"
touch "$TMP/again"
right again
# Twice from the same file: what it has done on b is known, too.
alive "$(bg_pid goes)" || fail "goes has ended too early for a second time: $(tail -1 "$TMP/goes.log")"
stop_bg b KILL || true
wait_for 10 is_state "$(bg_pid goes)" held || fail "it is not held again: $(state_of "$(bg_pid goes)")"
ctl restore "$(bg_pid goes)" "$TMP/goes.d" >"$TMP/ctl.out" || fail "$(cat "$TMP/ctl.out")"
same "server" gpu "$(ctl clients --json | python3 -c 'import json, sys
print([c["server"] for c in json.load(sys.stdin)["clients"] if c["pid"] == int(sys.argv[1])][0])' "$(bg_pid goes)")"
touch "$TMP/on-there"
right goes
same "results of the program that went on" "$(grep checksum "$TMP/still-on.out")" "$(grep checksum "$TMP/goes.log")"
node_up b "$B_PORT"

# ---- nobody restores it: it ends as without a checkpoint ----
sed 's/^hold = .*/hold = 1/' "$TMP/broker.conf" >"$TMP/short.conf"
start_bg short "$OUT/bin/gleamd" --no-fuse --socket "$TMP/short.sock" --config "$TMP/short.conf" --log debug
wait_for 10 grep -q 'is ready' "$TMP/short.log" || fail "the second daemon: $(tail -5 "$TMP/short.log")"
GLEAM_SOCKET=$TMP/short.sock start left carried 300 11 "$TMP/go" "$TMP/left"
wait_for 30 grep -q '^step: it pauses' "$TMP/left.log" || fail "left does not pause: $(tail -3 "$TMP/left.log")"
pid=$(bg_pid left)
"$OUT/bin/gleamctl" checkpoint "$pid" "$TMP/left.d" --socket "$TMP/short.sock" >/dev/null || fail "no checkpoint"
stop_bg node KILL || true
wait_for 20 grep -q "pid $pid .*no checkpoint was restored in time" "$TMP/short.log" || fail "it doesn't end: $(tail -3 "$TMP/short.log")"
touch "$TMP/left"
wait "$(bg_pid left)" && fail "a program without a worker goes on"
grep -q CUDA_ERROR_DEVICE_UNAVAILABLE "$TMP/left.log" || fail "left: $(tail -3 "$TMP/left.log")"
node_up node "$PORT"
stop_bg short || fail "the second daemon ended with status $?"
stop_bg b || fail "b ended with status $?: $(tail -5 "$TMP/b.log")"
path_down
