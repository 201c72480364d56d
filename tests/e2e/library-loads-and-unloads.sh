#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A plugin that loads the library, works from two threads and closes it, fifty times: descriptors and threads don't grow, threads
# may end after the close, a forked child is told that it has no CUDA.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"

need_cmd python3
need_built bin/gleamd bin/gleam-worker lib/libcuda.so.1 lib/libsoftcuda.so

port=$(free_port)
start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$port" --driver "$OUT/lib/libsoftcuda.so" \
	--worker "$OUT/bin/gleam-worker" --no-fuse --config /dev/null
start_bg broker "$OUT/bin/gleamd" --socket "$TMP/gleamd.sock" --server "one=127.0.0.1:$port" --no-fuse --config /dev/null
wait_for 5 test -S "$TMP/gleamd.sock"

cat >"$TMP/reload.py" <<'END'
import ctypes, os, sys, threading, time

path = sys.argv[1]
dlclose = ctypes.CDLL(None).dlclose
dlclose.argtypes = [ctypes.c_void_p]


def counts():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def once(linger):
    cuda = ctypes.CDLL(path)
    assert cuda.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    closed = threading.Event()
    wrong = []

    def work():
        stream = ctypes.c_void_p()
        wrong.extend(code for code in (cuda.cuCtxSetCurrent(context), cuda.cuStreamCreate(ctypes.byref(stream), 0),
                                       cuda.cuStreamSynchronize(stream), cuda.cuStreamDestroy_v2(stream)) if code)
        worked.release()
        if linger:
            closed.wait()

    worked = threading.Semaphore(0)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        worked.acquire()
    assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0
    dlclose(cuda._handle)
    closed.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


once(False)
before = counts()
for round in range(50):
    once(round % 2)
# A thread that was joined is seen in /proc for a moment longer, before as well. What fifty rounds leave behind is more than that.
for _ in range(100):
    if all(now <= then for now, then in zip(counts(), before)):
        break
    time.sleep(0.02)
assert all(now <= then for now, then in zip(counts(), before)), (before, counts())

child = os.fork()
if not child:
    cuda = ctypes.CDLL(path)
    count, version = ctypes.c_int(), ctypes.c_int()
    context = ctypes.c_void_p()
    codes = [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), cuda.cuCtxGetCurrent(ctypes.byref(context)),
             cuda.cuDriverGetVersion(ctypes.byref(version))]
    os._exit(codes != [3, 3, 3, 0])
assert os.waitpid(child, 0)[1] == 0
# The parent's session is whole.
once(False)
print("done")
END

GLEAM_SOCKET=$TMP/gleamd.sock python3 "$TMP/reload.py" "$OUT/lib/libcuda.so.1" >"$TMP/out"
same "what it printed" done "$(cat "$TMP/out")"
