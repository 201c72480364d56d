# SPDX-License-Identifier: Apache-2.0
"""The link protocol in cleartext, for tests that break it: a broker or a node made of sockets."""

import os
import re
import socket
import struct
import time

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../broker/proto/wire.h"), encoding="ascii") as header:
    LINK_VERSION = int(re.search(r"#define LINK_VERSION\s+(\d+)", header.read()).group(1))

HELLO, REFUSED, ATTACH, DETACH, SPAN, BULK_UP, SEEN, PING, REPORT_WANTED, RESUME = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
CACHE_WANTED, CACHE_DROPPED, BULK_KEEP, BULK_REF, CACHE_DEPOT, CACHE_DO, CACHE_FILL = 32, 33, 34, 35, 36, 37, 38
CACHE_OPEN, CACHE_HELD, CACHE_DROP, BULK_BAD, CACHE_STATS, CACHE_DONE = 48, 49, 50, 51, 52, 53
SPAN_BLANK, FILL_OPEN, FILL_CLOSE, POUR, POUR_END, FILL_JOIN = 11, 64, 65, 66, 67, 68
FILL_OPENED, FILL_CLOSED, POUR_READY, FILL_JOINED, FILL_CONSUMED, POUR_ENDED = 80, 81, 82, 83, 84, 85
ATTACHED, ENDED, CONSUMED, FRAME, BULK_DOWN, PONG, REPORT, RESUMED, FRAME_BYTES = 16, 17, 18, 19, 20, 21, 22, 23, 24
BULK_DOWN_FLAG = 4  # of a frame


def text(value):
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def pad(raw, size=4):
    return raw + bytes(-len(raw) % size)


def message(kind, session=0, body=b"", size=None, flags=0):
    return struct.pack("<IHHII", len(body) + 16 if size is None else size, kind, flags, session, 0) + body


def hello(hash_, lane=0, lanes=1, ident=b"i" * 16, version=LINK_VERSION, flags=1):
    """flags 1: takes LZ4."""
    return message(HELLO, 0, struct.pack("<III", version, lane, lanes) + hash_ + ident + text("peer.py"), flags=flags)


def attach_body(pid=1, grace_ms=0, token=b"t" * 16):
    return pad(struct.pack("<III", pid, 0, grace_ms) + token + text("hostile")) + text("")


def frame(kind=2, op=1, flags=0, slot=0, seq=1, payload=b"", size=None):
    size = 24 + len(payload) if size is None else size
    return struct.pack("<IHBBHHIQ", size, op, kind, flags, slot, 0xffff, 0, seq) + payload


class Conn:
    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(10)
        self.data = b""

    def send(self, raw):
        try:
            self.sock.sendall(raw)
        except ConnectionError:
            pass

    def take(self, size):
        while len(self.data) < size:
            try:
                part = self.sock.recv(1 << 20)
            except ConnectionError:
                part = b""
            if not part:
                return None
            self.data += part
        raw, self.data = self.data[:size], self.data[size:]
        return raw

    def next(self):
        """(type, session, body), or None when the other side has closed."""
        head = self.take(16)
        if head is None:
            return None
        size, kind, _, session, _ = struct.unpack("<IHHII", head)
        body = self.take(size - 16)
        return None if body is None else (kind, session, body)

    def until(self, kind):
        while True:
            got = self.next()
            if got is None or got[0] == kind:
                return got

    def is_closed(self):
        while self.next() is not None:
            pass
        return True

    def close(self):
        self.sock.close()


def connect(port):
    return Conn(socket.create_connection(("127.0.0.1", port)))


class Node:
    """Listens, and takes the connections of one link."""

    def __init__(self):
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen()
        self.sock.settimeout(15)
        self.port = self.sock.getsockname()[1]

    def accept(self, answer=True):
        conn = Conn(self.sock.accept()[0])
        kind, _, body = conn.next()
        assert kind == HELLO
        _, lane, lanes = struct.unpack_from("<III", body)
        self.hash = body[12:44]
        if answer:
            conn.send(hello(self.hash, lane, lanes, body[44:60]))
        return conn, lane, lanes

    def link(self):
        conn, lane, lanes = self.accept()
        assert lane == 0
        bulk = [self.accept()[0] for _ in range(lanes)]
        return conn, bulk
