#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each trouble that gleam-chaos can make is seen by a client and a server that talk through it, and ends
# when it is told to.
. "$(dirname "$0")/../lib/e2e.sh"
need_built tests/fault/gleam-chaos

cat >"$TMP/trouble.py" <<'END'
import json, os, socket, struct, subprocess, sys, threading, time

CHAOS, TMP = sys.argv[1], sys.argv[2]
CONTROL = TMP + "/chaos.sock"


class Echo:
    """A server that sends back what it gets, and notes how it came."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got, self.reads, self.ends = b"", 0, []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return  # closed by a test
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        try:
            while data := conn.recv(65536):
                self.got += data
                self.reads += 1
                conn.sendall(data)
            self.ends.append("end")
        except OSError as error:
            self.ends.append(type(error).__name__)
        conn.close()


class Chaos:
    def __init__(self, *options):
        self.echo = Echo()
        self.process = subprocess.Popen(
            [CHAOS, "--listen", "127.0.0.1:0", "--target", "127.0.0.1:%d" % self.echo.port,
             "--control", CONTROL, *options], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(5) == 0, "exit status %d" % self.process.returncode
        self.process.stdout.close()
        assert not os.path.exists(CONTROL), "the control socket is left"

    def ctl(self, *words):
        done = subprocess.run([CHAOS, "ctl", CONTROL, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stats(self):
        return json.loads(self.ctl("stats"))

    def connect(self, timeout=10):
        return socket.create_connection(("127.0.0.1", self.port), timeout)


def receive(conn, size):
    data = b""
    while len(data) < size:
        piece = conn.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def expect_reset(conn):
    try:
        while conn.recv(65536):
            pass
    except ConnectionResetError:
        return
    raise AssertionError("the connection was not reset")


def expect_silence(conn, seconds=0.3):
    conn.settimeout(seconds)
    try:
        data = conn.recv(1)
    except TimeoutError:
        conn.settimeout(10)
        return
    raise AssertionError("there should be silence, but %r came" % data)


def wait_for(condition):
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def passes_everything():
    with Chaos() as chaos, chaos.connect() as conn:
        data = os.urandom(3 << 20)
        threading.Thread(target=conn.sendall, args=(data,), daemon=True).start()
        assert receive(conn, len(data)) == data
        conn.shutdown(socket.SHUT_WR)
        assert conn.recv(1) == b""
        wait_for(lambda: chaos.stats()["open"] == 0)
        assert chaos.echo.ends == ["end"], chaos.echo.ends
        assert chaos.stats()["up"]["bytes"] == len(data)


def delays():
    with Chaos("--delay-up", "300") as chaos, chaos.connect() as conn:
        begun = time.monotonic()
        conn.sendall(b"x")
        assert receive(conn, 1) == b"x"
        assert time.monotonic() - begun >= 0.3
        chaos.ctl("delay", "0")
        begun = time.monotonic()
        conn.sendall(b"y")
        assert receive(conn, 1) == b"y"
        assert time.monotonic() - begun < 0.3


def throttles():
    with Chaos("--rate-down", "1mbit") as chaos, chaos.connect() as conn:
        begun = time.monotonic()
        conn.sendall(b"z" * 50000)
        assert len(receive(conn, 50000)) == 50000
        assert time.monotonic() - begun >= 0.35, time.monotonic() - begun  # 0.4 s less a portion


def byte_by_byte():
    with Chaos("--piece", "1", "--gap", "1ms") as chaos, chaos.connect() as conn:
        data = bytes(range(100))
        conn.sendall(data)
        assert receive(conn, 100) == data
        assert chaos.echo.reads > 20, chaos.echo.reads


def flips_a_bit():
    seen = []
    for _ in range(2):
        with Chaos("--flip-at-up", "1000", "--seed", "9") as chaos, chaos.connect() as conn:
            conn.sendall(bytes(2000))
            data = receive(conn, 2000)
            changed = [(at, byte) for at, byte in enumerate(data) if byte]
            assert len(changed) == 1 and changed[0][0] == 1000 and bin(changed[0][1]).count("1") == 1, changed
            seen.append(changed)
            assert chaos.stats()["up"]["flipped"] == 1
    assert seen[0] == seen[1]


def cuts_at_a_byte():
    with Chaos("--cut-at-up", "1500", "--times", "1") as chaos:
        with chaos.connect() as conn:
            conn.sendall(bytes(4000))
            expect_reset(conn)
        wait_for(lambda: chaos.echo.ends)
        assert len(chaos.echo.got) <= 1500
        assert chaos.echo.ends == ["ConnectionResetError"], chaos.echo.ends
        # The second connection is spared: --times 1.
        with chaos.connect() as conn:
            conn.sendall(bytes(4000))
            assert len(receive(conn, 4000)) == 4000


def cuts_on_command():
    with Chaos() as chaos, chaos.connect() as one, chaos.connect() as two:
        for conn in one, two:
            conn.sendall(b"a")
            assert receive(conn, 1) == b"a"
        chaos.ctl("cut")
        expect_reset(one)
        expect_reset(two)
        assert chaos.stats()["resets"] == 2
        with chaos.connect() as conn:
            conn.sendall(b"b")
            assert receive(conn, 1) == b"b"
            chaos.ctl("close")
            assert conn.recv(1) == b""


def half_open():
    with Chaos() as chaos, chaos.connect() as conn:
        conn.sendall(b"a")
        assert receive(conn, 1) == b"a"
        chaos.ctl("stall-down")
        conn.sendall(b"b")
        wait_for(lambda: chaos.echo.got == b"ab")
        expect_silence(conn)
        chaos.ctl("flow")
        assert receive(conn, 1) == b"b"
        chaos.ctl("swallow-up")
        conn.sendall(b"lost")
        wait_for(lambda: chaos.stats()["up"]["swallowed"] == 4)
        chaos.ctl("flow")
        conn.sendall(b"c")
        assert receive(conn, 1) == b"c"
        assert chaos.echo.got == b"abc"


def a_reset_is_not_told_while_stalled():
    with Chaos() as chaos:
        conn = chaos.connect()
        conn.sendall(b"a")
        assert receive(conn, 1) == b"a"
        chaos.ctl("stall")
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        conn.close()
        time.sleep(0.3)
        assert chaos.echo.ends == []
        chaos.ctl("flow")
        wait_for(lambda: chaos.echo.ends)


def silent():
    with Chaos() as chaos, chaos.connect() as old:
        old.sendall(b"a")
        assert receive(old, 1) == b"a"
        chaos.ctl("silent")
        with chaos.connect() as new:
            old.sendall(b"b")
            new.sendall(b"c")
            expect_silence(old)
            expect_silence(new)
            assert chaos.echo.got == b"a"
            chaos.ctl("flow")
            assert receive(old, 1) == b"b"
            assert receive(new, 1) == b"c"
        wait_for(lambda: chaos.stats()["open"] == 1)  # the end of new has been told on
        chaos.ctl("silent")
        for _ in range(300):  # those who give up make room
            chaos.connect().close()
        wait_for(lambda: chaos.stats()["open"] <= 1)


def refuses():
    with Chaos("--at", "0:refuse", "--at", "400:accept") as chaos:
        wait_for(lambda: chaos.process.poll() is None and refused(chaos))
        wait_for(lambda: not refused(chaos))
        chaos.ctl("refuse")
        assert refused(chaos)
        chaos.ctl("accept")
        with chaos.connect() as conn:
            conn.sendall(b"a")
            assert receive(conn, 1) == b"a"


def refused(chaos):
    try:
        chaos.connect().close()
        return False
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it was in the queue when the listener went
        return False


def no_target():
    with Chaos() as chaos:
        chaos.echo.listener.close()
        # close() alone leaves the thread's accept() holding the socket: a connection ends that
        try:
            socket.create_connection(("127.0.0.1", chaos.echo.port), 1).close()
        except OSError:
            pass
        wait_for(lambda: not answers(chaos.echo.port))
        try:
            with chaos.connect() as conn:
                expect_reset(conn)
        except ConnectionResetError:
            pass  # so soon that connect() saw it


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def strangers_on_the_control_socket():
    with Chaos() as chaos, chaos.connect() as conn:
        held = []
        for text in b"fly", b"delay", b"delay x", b"x" * 3000, b"\0\xff\0", b"cut-at 5:", b"delay 1 2":
            stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stranger.settimeout(5)
            stranger.connect(CONTROL)
            stranger.send(text)
            assert not stranger.recv(4096).startswith(b"ok"), text
        for _ in range(20):
            stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stranger.setblocking(False)
            try:
                stranger.connect(CONTROL)
            except BlockingIOError:
                break
            held.append(stranger)
        conn.sendall(b"a")
        assert receive(conn, 1) == b"a"
        for stranger in held:
            stranger.close()


for test in (passes_everything, delays, throttles, byte_by_byte, flips_a_bit, cuts_at_a_byte, cuts_on_command,
             half_open, a_reset_is_not_told_while_stalled, silent, refuses, no_target,
             strangers_on_the_control_socket):
    begun = time.monotonic()
    test()
    print("%-40s %.2f s" % (test.__name__, time.monotonic() - begun), flush=True)
END
python3 "$TMP/trouble.py" "$OUT/tests/fault/gleam-chaos" "$TMP"

for words in "" "--listen 0" "--listen 0 --target x" "--listen 99999 --target 1" "--listen 0 --target 1 --fly 1" \
	"--listen 0 --target 1 --delay" "--listen 0 --target 1 --cut-at 9:1" "--listen 0 --target 1 --at 5" \
	"--listen 0 --target 1 --at 5:fly" "ctl"; do
	# shellcheck disable=SC2086
	same "status of 'gleam-chaos $words'" 2 "$(status_of "$OUT/tests/fault/gleam-chaos" $words)"
done
same "status of ctl with nobody there" 1 "$(status_of "$OUT/tests/fault/gleam-chaos" ctl "$TMP/none" stats)"
