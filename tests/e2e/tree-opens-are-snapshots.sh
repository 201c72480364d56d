#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# However often a value is read: whoever opens it after it has changed sees the new one, and what somebody has open stays what it was, though the
# kernel reads by itself what is polled (as root, Linux 6.9 on).
# time-limit: 60
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

tree_or_skip
g=$TMP/gleam
soft_up --mount "$g"
cat >"$TMP/snapshots.py" <<'PY'
# A program that reads how many calls it has made: nobody else makes any, so the number is known.
import ctypes, os, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
device = ctypes.c_int()
path = "%s/clients/%d/calls" % (sys.argv[1], os.getpid())
stop, seen, failed = threading.Event(), [0, 0, 0], []
def look(index): # as those that poll do: in one read, in small ones, late
    last = 0
    try:
        while not stop.is_set():
            file = os.open(path, os.O_RDONLY)
            if seen[index] % 3 == 0:
                time.sleep(0.002)
            text = b"".join(iter(lambda: os.read(file, 2 if seen[index] % 2 else 4096), b""))
            if int(text) < last or not text.endswith(b"\n"):
                failed.append("%r after %d" % (text, last))
            last = int(text)
            if os.pread(file, 100, 0) != text:
                failed.append("an open file has changed from %r" % text)
            os.close(file)
            seen[index] += 1
    except (OSError, ValueError) as error:
        failed.append("reading: %s" % error)
def get():
    with open(path, "rb", 0) as file:
        return int(file.read(100))
base, made, turns, held, steady = get(), 0, 0, [], 0
readers = [threading.Thread(target=look, args=(index,)) for index in range(3)]
for reader in readers:
    reader.start()
end = time.monotonic() + 4
while time.monotonic() < end and not failed:
    for _ in range(1 + turns % 3 * 50): # 1, 51, 101: fewer digits and more of them
        assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        made += 1
    for _ in range(turns % 9): # until the kernel reads by itself, or not
        if (number := get()) != base + made:
            failed.append("%d calls, %d are read" % (base + made, number))
    held.append((os.open(path, os.O_RDONLY), base + made))
    if len(held) > turns % 5:
        for file, was in held:
            if (text := os.pread(file, 100, 0)) != b"%d\n" % was:
                failed.append("%d is open, %r is read" % (was, text))
            os.close(file)
        held.clear()
    if turns % 10 == 0:
        time.sleep(0.03) # releases are taken, and the file is written anew
    turns += 1
stop.set()
for reader in readers:
    reader.join()
assert not failed, failed[:5]
assert min(seen) > 50 and turns > 50, (seen, turns)
# What is open can't be changed by who reads it.
file = os.open(path, os.O_RDONLY)
text = os.pread(file, 100, 0)
for how in (lambda: os.write(file, b"x"), lambda: os.ftruncate(file, 0)):
    try:
        how()
        raise AssertionError("it can be written to")
    except (OSError, ValueError):
        pass
assert os.pread(file, 100, 0) == text
print("%d changes, %s reads beside them" % (turns, seen))
PY
LD_LIBRARY_PATH=$OUT/lib timeout "$(slow 50)" python3 "$TMP/snapshots.py" "$g" || fail "$(cat "$TMP/client.log")"

# What is commanded is seen at once, too, by those that poll it.
for policy in cost round-robin least-loaded cost; do
	echo $policy >"$g/scheduler/policy"
	for _ in 1 2 3 4 5; do same "policy" $policy "$(cat "$g/scheduler/policy")"; done
done

# Files that were open when the daemon is killed stay readable or fail; they don't hang, and the next daemon has its tree there.
for _ in 1 2 3 4; do cat "$g/version" >/dev/null; done
exec 7<"$g/version"
kill -KILL "$(bg_pid client)"
wait "$(bg_pid client)" 2>/dev/null || true
timeout "$(slow 10)" cat <&7 >/dev/null 2>&1 || [ $? != 124 ] || fail "a read hangs"
exec 7<&-
client_start --mount "$g"
for _ in 1 2 3 4; do same "version" "$("$OUT/bin/gleamd" --version | grep -oE '[0-9.]+' | head -1)" "$(cat "$g/version")"; done
! grep -E "can't (answer|take back)" "$TMP/client.log" || fail "$(cat "$TMP/client.log")"
soft_down
