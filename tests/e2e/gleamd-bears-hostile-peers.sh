#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A broker that breaks the link protocol loses its link or its session, a node that does so likewise; both daemons go on, and
# other versions are refused in words on both sides.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

node_up node
broker_up broker
client broker echo 10
PYTHONPATH=$TOP/tests/fake PYTHONDONTWRITEBYTECODE=1 python3 - "$PORT" "$OUT" "$TMP" <<'PY' || { cat "$TMP"/*.log; fail "see above"; }
import os, struct, subprocess, sys, time
from peer import *
port, out, tmp = int(sys.argv[1]), sys.argv[2], sys.argv[3]
gleamd, client = out + "/bin/gleamd", out + "/tests/fake/fake-client"

def daemon(node_port, *more):
    path = f"{tmp}/p{node_port}.sock"
    log = open(f"{tmp}/p{node_port}.log", "w")
    d = subprocess.Popen([gleamd, "--no-fuse", "--socket", path, "--server", f"gpu=127.0.0.1:{node_port}", "--grace", "0", *more], stderr=log)
    while not os.path.exists(path):
        time.sleep(0.02)
    return d, path

def run(path, *args):
    return subprocess.Popen([client, path, *args], stdout=subprocess.PIPE, text=True)

# ---- a hostile node ----

def against(what, breach, expected):
    """A session on a node of ours, which then does breach(command, bulk, session)."""
    node = Node()
    d, path = daemon(node.port, "--lanes", "1")
    held = run(path, "op", "12")	# FAKE_STALL: one command, then it waits for the end
    command, bulk = node.link()
    _, session, body = command.until(ATTACH)
    command.send(message(ATTACHED, session, struct.pack("<I", 0) + text("")))
    assert command.until(SPAN)
    breach(command, bulk[0], session)
    got = held.communicate(timeout=10)[0].strip()
    assert got == f"ended: {expected}", (what, got)
    assert d.poll() is None, what
    for c in [command] + bulk:
        c.close()
    d.terminate()
    assert d.wait(10) == 0, (what, d.returncode)
    return node.hash

frames = lambda *f: lambda c, b, s: [c.send(message(FRAME, s, x)) for x in f]
HASH = against("an end in words", lambda c, b, s: c.send(message(ENDED, s, struct.pack("<I", 2) + text("it died"))), 2)
against("a frame cut short", frames(b"12345678"), 4)
against("a frame of another size", frames(frame(size=99)), 4)
against("a command from a node", frames(frame(kind=1)), 4)
against("unknown flags", frames(frame(flags=0x40)), 4)
against("a slot that isn't", frames(frame(slot=9999)), 4)
against("a reply too long for its slot", frames(frame(payload=bytes(9000))), 4)
against("a progress word that isn't", frames(frame(kind=3, op=1, payload=struct.pack("<II", 99999, 1))), 4)
against("an error without a context", frames(frame(kind=3, op=2, payload=struct.pack("<III", 64, 1, 1))), 4)
against("an arena that runs back", frames(frame(kind=3, op=3, payload=struct.pack("<Q", 4096)),
                                          frame(kind=3, op=3, payload=struct.pack("<Q", 0))), 4)
against("commands consumed that never were", lambda c, b, s: c.send(message(CONSUMED, s, struct.pack("<Q", 1 << 40))), 4)
against("an end that says nothing", lambda c, b, s: c.send(message(ENDED, s)), 4)
against("bulk bytes out of the arena", lambda c, b, s: b.send(message(BULK_DOWN, s, struct.pack("<QII", 1, 32 << 20, 64) + bytes(64))), 3)
against("bulk bytes over the message", lambda c, b, s: b.send(message(BULK_DOWN, s, struct.pack("<QII", 1, 0, 65) + bytes(64))), 3)
against("a frame behind bulk bytes that lies", lambda c, b, s: b.send(
    message(BULK_DOWN, s, struct.pack("<QII", 1, 0, 64) + bytes(64) + frame(size=77))), 3)
few = lambda offset, size, raw, flags=BULK_DOWN_FLAG: lambda c, b, s: c.send(
    message(FRAME_BYTES, s, frame(flags=flags, payload=struct.pack("<IIQ", offset, size, 0) + bytes(8)) + raw))
against("few bytes without a frame", lambda c, b, s: c.send(message(FRAME_BYTES, s)), 3)
against("few bytes of a frame that has none", few(0, 64, bytes(64), flags=0), 3)
against("few bytes out of the arena", few(32 << 20, 64, bytes(64)), 3)
against("few bytes over the message", few(0, 65, bytes(64)), 3)
against("few bytes and more", few(0, 64, bytes(72)), 3)
against("few bytes that are many", few(0, 33 << 10, bytes(33 << 10)), 3)
lz4 = lambda size, stored, raw: lambda c, b, s: b.send(
    message(BULK_DOWN, s, struct.pack("<QIII", 1, 0, size, stored) + raw, flags=1))
against("LZ4 that is none", lz4(64, 3, bytes(3)), 3)
against("LZ4 as long as its bytes", lz4(64, 64, bytes(64)), 3)
against("LZ4 over its message", lz4(64, 60, bytes(10)), 3)
against("LZ4 of nothing", lz4(64, 0, b""), 3)
against("LZ4 of more than a piece", lz4((1 << 20) + 1, 64, bytes(64)), 3)
against("an unknown flag on a lane", lambda c, b, s: b.send(message(BULK_DOWN, s, struct.pack("<QII", 1, 0, 64) + bytes(64), flags=2)), 3)
against("a command on a lane", lambda c, b, s: b.send(message(FRAME, s, frame())), 3)
against("an endless message", lambda c, b, s: c.send(message(FRAME, s, b"", size=0xffffffff)), 3)
against("an unknown message", lambda c, b, s: c.send(message(99, s)), 3)
against("flags", lambda c, b, s: c.send(message(FRAME, s, frame(), flags=1)), 3)
against("a lane that ends", lambda c, b, s: b.close(), 3)
against("a report that isn't", lambda c, b, s: c.send(message(REPORT, 0, b"\1\0\0\0")), 3)

open_ = message(CACHE_OPEN, 0, bytes(40))
held = lambda n, raw: message(CACHE_HELD, 0, struct.pack("<II", n, 0) + raw)
one = bytes(16) + struct.pack("<II", 100, 1)
def sends(*raws):
    return lambda c, b, s: [c.send(r) for r in raws]
against("chunks before the cache is open", sends(held(1, one)), 3)
against("a cache that opens twice", sends(open_, open_), 3)
against("chunks that aren't all there", sends(open_, held(2, one)), 3)
against("more chunks than a message has", sends(open_, held(1 << 30, one)), 3)
against("a chunk of no size", sends(open_, held(1, bytes(24))), 3)
against("a chunk too big", sends(open_, held(1, bytes(16) + struct.pack("<II", 1 << 30, 1))), 3)
against("a damaged reference that never was", lambda c, b, s: c.send(message(BULK_BAD, s, struct.pack("<QII", 65536, 65536, 100))), 3)
against("a damaged reference nowhere", lambda c, b, s: c.send(message(BULK_BAD, s, struct.pack("<QII", 1, 1 << 31, 100))), 3)

def refused(what, play, says):
    node = Node()
    d, path = daemon(node.port, "--lanes", "1")
    start = time.monotonic()
    held = run(path, "try")
    kept = play(node)
    got = held.communicate(timeout=10)[0]
    assert got.startswith("refused") and says in got, (what, got)
    assert time.monotonic() - start < 3.2, (what, time.monotonic() - start)
    d.terminate()
    assert d.wait(10) == 0, what

refused("silence", lambda n: n.accept(answer=False), "no answer in time")
refused("another answer", lambda n: n.accept(answer=False)[0].send(hello(n.hash, 0, 7)), "another hello")
refused("another version", lambda n: n.accept(answer=False)[0].send(hello(n.hash, version=1)), "update the older one")
refused("another protocol", lambda n: n.accept(answer=False)[0].send(hello(bytes(32))), "update the older one")
def says_no(n):
    command, bulk = n.link()
    _, session, _ = command.until(ATTACH)
    # Bytes for a session that isn't there yet go nowhere.
    bulk[0].send(message(BULK_DOWN, session, struct.pack("<QII", 1, 0, 64) + bytes(64)))
    command.send(message(ATTACHED, session, struct.pack("<I", 7) + text("full house")))
    return command, bulk
refused("a full node", says_no, "full house")
def never(n):
    command, bulk = n.link()
    command.until(ATTACH)
    # (A node that lives and says nothing has a minute: its worker may be being made ready.)
    n.sock.close()
    for c in [command] + bulk:
        c.close()
refused("a node that goes instead of attaching", never, "closed by the peer")

# ---- a hostile broker ----

def good_client():
    got = run(f"{tmp}/broker.sock", "echo", "5")
    assert got.wait(20) == 0

def closes(what, raw):
    c = connect(port)
    c.send(raw)
    assert c.is_closed(), what
    c.close()

closes("no hello", message(PING, 0, bytes(8)))
closes("a long hello", message(HELLO, 0, bytes(2000)))
closes("a hello with unknown flags", hello(HASH, flags=2))
closes("no lanes", hello(HASH, 0, 0))
closes("too many lanes", hello(HASH, 0, 17))
closes("a lane beyond", hello(HASH, 3, 2))
closes("bytes behind a hello of a lane", hello(HASH, 1, 1) + b"xx")
c = connect(port)
c.send(hello(HASH, version=LINK_VERSION + 1))
kind, _, body = c.next()
assert kind == REFUSED and b"update the older one" in body
assert c.is_closed()
c = connect(port)
c.send(hello(bytes(32)))
kind, _, body = c.next()
assert kind == REFUSED and b"update the older one" in body
c = connect(port)
c.send(hello(HASH, 1, 1, ident=os.urandom(16)))
kind, _, body = c.next()
assert kind == REFUSED and b"isn't here" in body

def link():
    ident = os.urandom(16)
    c = connect(port)
    c.send(hello(HASH, 0, 1, ident))
    assert c.next()[0] == HELLO
    b = connect(port)
    b.send(hello(HASH, 1, 1, ident))
    assert b.next()[0] == HELLO
    # A second one of the same lane is refused.
    again = connect(port)
    again.send(hello(HASH, 1, 1, ident))
    assert again.next()[0] == REFUSED
    return c, b

def breaks(what, *raws, lane=False):
    """A link with a session; the raw messages end all of it."""
    c, b = link()
    c.send(message(ATTACH, 5, attach_body()))
    kind, session, body = c.until(ATTACHED)
    assert session == 5 and body[:4] == bytes(4), (what, body)
    for raw in raws:
        (b if lane else c).send(raw)
    assert c.is_closed(), what
    assert b.is_closed(), what
    good_client()

breaks("an unknown message", message(77, 5))
breaks("a message too short", message(SPAN, 5))
breaks("a size below the header's", message(SPAN, 5, b"", size=8))
breaks("an endless message", message(SPAN, 5, b"", size=0xfffffff0))
breaks("the same session again", message(ATTACH, 5, attach_body()))
breaks("session 0", message(ATTACH, 0, attach_body()))
breaks("an attach cut short", message(ATTACH, 6, attach_body()[:10]))
breaks("a string without an end", message(ATTACH, 6, struct.pack("<III", 1, 1, 0xffffffff)))
breaks("a report request cut short", message(REPORT_WANTED, 0, b"\0"))
up = lambda offset, size, cookie, raw: message(BULK_UP, 5, struct.pack("<QQII", 1, cookie, offset, size) + raw)
breaks("up out of the arena", up(64 << 20, 64, 64 << 20, bytes(64)), lane=True)
breaks("up over the arena's end", up((64 << 20) - 65536, 70000, (64 << 20) - 65536, bytes(70000)), lane=True)
breaks("up beside a granule", up(8, 64, 8, bytes(64)), lane=True)
breaks("up with another cookie", up(0, 64, 65536, bytes(64)), lane=True)
breaks("up that is longer than its message", up(0, 65, 0, bytes(64)), lane=True)
keep = lambda tag, at, total, raw: message(BULK_KEEP, 5, struct.pack("<QQIIQII", 1, 0, 0, len(raw), tag, at, total) + raw)
breaks("to be kept beyond its chunk", keep(9, 100, 120, bytes(64)), lane=True)
breaks("to be kept in a chunk too big", keep(9, 0, 5 << 20, bytes(64)), lane=True)
breaks("to be kept without a chunk", keep(0, 64, 128, bytes(64)), lane=True)
breaks("to be kept of no size", keep(9, 0, 0, bytes(64)), lane=True)
ref = lambda name, size=64, at=0, total=64, offset=0: message(BULK_REF, 5, struct.pack("<QQIIII", 1, offset, offset, size, at, total) + name)
breaks("a reference out of the arena", ref(bytes(32), offset=64 << 20))
breaks("a reference beside a granule", ref(bytes(32), offset=8))
breaks("a reference cut short", message(BULK_REF, 5, bytes(40)))
breaks("chunks forgotten that weren't asked for", message(CACHE_WANTED), message(CACHE_DROPPED, 0, struct.pack("<II", 1, 0) + bytes(24)))
breaks("the cache wanted twice", message(CACHE_WANTED), message(CACHE_WANTED))
breaks("a command for the cache that isn't", message(CACHE_WANTED), message(CACHE_DO, 0, struct.pack("<II", 1, 99) + bytes(16)))
breaks("a depot that is a session", message(CACHE_WANTED), message(CACHE_DEPOT, 5))
breaks("commands for a depot", message(CACHE_WANTED), message(CACHE_DEPOT, 6), message(SPAN, 6, struct.pack("<Q", 0) + bytes(64)))
fill = lambda tag, at, total, raw: message(CACHE_FILL, 0, struct.pack("<QII", tag, at, total) + raw)
breaks("bytes for no chunk", message(CACHE_WANTED), fill(0, 0, 100, bytes(50)))
breaks("bytes beyond their chunk", message(CACHE_WANTED), fill(1, 90, 100, bytes(50)))
breaks("bytes before the cache is wanted", fill(1, 0, 100, bytes(50)))
breaks("depots without end", message(CACHE_WANTED), *[message(CACHE_DEPOT, 10 + i) for i in range(5)])
breaks("a span on a lane", message(SPAN, 5, bytes(32)), lane=True)

def ends(what, *raws):
    """Only the session ends, with END_PROTOCOL; the link goes on."""
    c, b = link()
    c.send(message(ATTACH, 5, attach_body()))
    c.until(ATTACHED)
    for raw in raws:
        c.send(raw)
    kind, session, body = c.until(ENDED)
    assert session == 5 and struct.unpack_from("<I", body)[0] == 4, (what, body)
    c.send(message(PING, 0, bytes(8)))
    assert c.until(PONG), what
    # Late messages for it are dropped, also bulk.
    c.send(message(SPAN, 5, bytes(32)))
    b.send(up(0, 64, 0, bytes(64)))
    c.send(message(PING, 0, bytes(8)))
    assert c.until(PONG), what
    c.close()
    b.close()
    good_client()

ends("a span that leaves a gap", message(SPAN, 5, struct.pack("<Q", 64) + bytes(64)))
ends("a span beside the alignment", message(SPAN, 5, struct.pack("<Q", 0) + bytes(63)))
ends("a reference without a cache", ref(bytes(32)))
ends("a reference to nothing", message(CACHE_WANTED), ref(b"x" * 32))
# A chunk that is there: who has a lease may name it, who hasn't loses the session. Its hash alone gives nobody anything.
import hashlib
bytes_ = os.urandom(64)
c, b = link()
c.send(message(CACHE_WANTED))
salt = c.until(CACHE_OPEN)[2][8:40]
c.send(message(ATTACH, 5, attach_body()))
c.until(ATTACHED)
b.send(keep(0, 0, 64, bytes_))
name = hashlib.sha256(salt + bytes_).digest()
_, _, body = c.until(CACHE_HELD)
assert body[8:24] == name[:16] and struct.unpack_from("<I", body, 24)[0] == 64, body
c.send(ref(name, offset=65536))
ends("a reference without a lease", ref(name))
ends("a reference beyond its chunk", message(CACHE_WANTED), ref(name, at=1))
ends("a reference of another size", message(CACHE_WANTED), ref(name, total=65))
c.send(message(PING, 0, bytes(8)))
assert c.until(PONG)
c.close()
b.close()
spans = []
at = 0
part = frame(kind=1, op=12, payload=bytes(8))
spans.append(message(SPAN, 5, struct.pack("<Q", 0) + part))
at = len(part)
filler = frame(kind=1, op=1, payload=bytes(60000 - 24))
while at <= 4 << 20:			# more than the ring has room for
    spans.append(message(SPAN, 5, struct.pack("<Q", at) + filler))
    at += len(filler)
ends("spans without room", *spans)
# Links that come and go, half open, many at once.
for i in range(20):
    c = connect(port)
    c.send(hello(HASH, 0, 4, os.urandom(16))[: 1 + i * 5])
    if i % 2:
        c.close()
cs = [link() for i in range(10)]
for c, b in cs:
    c.send(message(ATTACH, 1, attach_body()))
for c, b in cs:
    c.close()
good_client()

breaks("blanks cut short", message(SPAN_BLANK, 5, bytes(8)))
breaks("blanks beyond a frame", message(SPAN_BLANK, 5, struct.pack("<QII", 0, 1 << 30, 0) + bytes(32)))
breaks("blanks that are shorter than their beginning", message(SPAN_BLANK, 5, struct.pack("<QII", 0, 8, 0) + bytes(32)))
ends("blanks that leave a gap", message(SPAN_BLANK, 5, struct.pack("<QII", 64, 64, 0) + bytes(32)))

# ---- another node that wants to fill a session ----

breaks("a way cut short", message(POUR, 5, struct.pack("<I", 1) + b"x" * 16))
breaks("a way without a number", message(POUR, 5, struct.pack("<I", 0) + b"x" * 16 + text("127.0.0.1:1")))
breaks("the end of a way cut short", message(POUR_END, 5))
breaks("a joining cut short", message(FILL_JOIN, 9, b"short"))
breaks("filled twice", message(FILL_OPEN, 5), message(FILL_OPEN, 5))

def result_of(body):
    return struct.unpack_from("<I", body)[0]

def joins(c, session, token):
    c.send(message(FILL_JOIN, session, token))
    got, number, body = c.until(FILL_JOINED)
    assert number == session
    return result_of(body)

def filled():
    """A broker with a session 5 that waits to be filled, and its token."""
    c, b = link()
    c.send(message(ATTACH, 5, attach_body()))
    c.until(ATTACHED)
    c.send(message(FILL_OPEN, 5))
    got, number, token = c.until(FILL_OPENED)
    assert number == 5 and len(token) == 16
    return c, b, token

def lives(*conns):
    for c in conns:
        c.send(message(PING, 0, bytes(8)))
        assert c.until(PONG)

# A wrong token costs nothing and gives nothing; the right one is good once, and for this session's arena alone.
c, b, token = filled()
n, nb = link()
assert joins(n, 1, os.urandom(16)), "a token of nobody"
assert joins(n, 1, token[:15] + bytes([token[15] ^ 1])), "nearly the token"
lives(n, c)
assert joins(n, 7, token) == 0
assert joins(n, 8, token), "the same token again"
other, ob = link()
assert joins(other, 7, token), "the same token, elsewhere"
lives(c, n, other)
piece = lambda session, offset, cookie, raw, size=None: message(
    BULK_UP, session, struct.pack("<QQII", 0, cookie, offset, len(raw) if size is None else size) + raw)
start = 1 << 46
nb.send(piece(7, 0, start, bytes(1000)))
nb.send(piece(9, 0, start, bytes(1000)))	# of nobody's session: goes nowhere
lives(n, c)
# It is no session of its own: whoever takes it for one loses that link, and the broker hears so; its session lives.
n.send(message(SPAN, 7, struct.pack("<Q", 0) + frame(kind=1, op=12, payload=bytes(8))))
assert n.is_closed() and nb.is_closed()
got, number, body = c.until(FILL_CLOSED)
assert number == 5 and result_of(body), body
lives(c, other)
for x in (c, b, other, ob):
    x.close()

def fill_breaks(what, play):
    """A breach of whoever fills ends that filling, and no more."""
    c, b, token = filled()
    n, nb = link()
    assert joins(n, 7, token) == 0
    play(n, nb)
    assert n.is_closed() and nb.is_closed(), what
    got, number, body = c.until(FILL_CLOSED)
    assert number == 5 and result_of(body), (what, body)
    lives(c)
    c.send(message(SPAN, 5, struct.pack("<Q", 0) + frame(kind=1, op=1, flags=1, slot=3, seq=1, payload=bytes(8))))
    assert c.until(FRAME), what
    for x in (c, b):
        x.close()
    good_client()

fill_breaks("a detach", lambda n, nb: n.send(message(DETACH, 7)))
fill_breaks("frames that came", lambda n, nb: n.send(message(SEEN, 7, bytes(16))))
fill_breaks("blanks", lambda n, nb: n.send(message(SPAN_BLANK, 7, struct.pack("<QII", 0, 64, 0) + bytes(32))))
fill_breaks("a piece beyond the arena", lambda n, nb: nb.send(piece(7, 64 << 20, start, bytes(64))))
fill_breaks("a piece over the arena's end", lambda n, nb: nb.send(piece(7, (64 << 20) - 65536, start + (64 << 20) - 65536, bytes(70000))))
fill_breaks("a piece with another place's position", lambda n, nb: nb.send(piece(7, 0, start + 65536, bytes(64))))
fill_breaks("a piece that is longer than its message", lambda n, nb: nb.send(piece(7, 0, start, bytes(64), 65)))
fill_breaks("a reference without a cache", lambda n, nb: n.send(
    message(BULK_REF, 7, struct.pack("<QQIIII", 0, start, 0, 64, 0, 64) + bytes(32))))
fill_breaks("a reference to nothing", lambda n, nb: [n.send(message(CACHE_WANTED)), n.send(
    message(BULK_REF, 7, struct.pack("<QQIIII", 0, start, 0, 64, 0, 64) + b"x" * 32))])
fill_breaks("a second session of the same number", lambda n, nb: n.send(message(FILL_JOIN, 7, bytes(16))) or n.send(message(77, 7)))
# Half a piece, when the broker closes it: the broker isn't kept waiting by that.
c, b, token = filled()
n, nb = link()
assert joins(n, 7, token) == 0
nb.send(piece(7, 0, start, bytes(1000))[:500])
n.send(message(PING, 0, bytes(8)))
assert n.until(PONG)
time.sleep(0.2)
c.send(message(FILL_CLOSE, 5))
got, number, body = c.until(FILL_CLOSED)
assert number == 5 and result_of(body) == 0, body
assert n.is_closed()
n, nb = link()
assert joins(n, 1, token), "a token whose session is closed"
lives(c)
c.send(message(FILL_CLOSE, 5))
assert result_of(c.until(FILL_CLOSED)[2]) == 0, "closed already"
c.send(message(DETACH, 5))
for x in (c, b):
    x.close()

# ---- a node that is to be filled, and lies to the one that fills it ----

def poured(way=3, address=None):
    """A broker with a session, and the node of ours that its node is told to fill."""
    there = Node()
    c, b = link()
    c.send(message(ATTACH, 5, attach_body()))
    c.until(ATTACHED)
    c.send(message(POUR, 5, struct.pack("<I", way) + b"T" * 16 + text(address or f"127.0.0.1:{there.port}")))
    return c, b, there

def told(c, way=3):
    got, number, body = c.until(POUR_READY)
    assert number == 5 and struct.unpack_from("<I", body)[0] == way
    return struct.unpack_from("<I", body, 4)[0], body[12:]

def pour_fails(what, play, says):
    c, b, there = poured()
    n, lanes = there.link()
    got, session, body = n.until(FILL_JOIN)
    assert body == b"T" * 16
    play(n, session)
    err, why = told(c)
    if err == 0 and says:	# it was there, and then it wasn't
        err, why = told(c)
    assert err and says in why, (what, err, why)
    lives(c)
    for x in [c, b, n] + lanes:
        x.close()
    good_client()

no = lambda n, s: n.send(message(FILL_JOINED, s, struct.pack("<I", 13) + text("not here")))
yes = lambda n, s: n.send(message(FILL_JOINED, s, struct.pack("<I", 0) + text("")))
def then(*raws):
    return lambda n, s: [yes(n, s)] + [n.send(raw(s)) for raw in raws]
pour_fails("a refusal", no, b"not here")
pour_fails("an answer cut short", lambda n, s: n.send(message(FILL_JOINED, s, b"\0")), b"")
pour_fails("two answers", then(lambda s: message(FILL_JOINED, s, struct.pack("<I", 0) + text(""))), b"message 83")
pour_fails("used up what never came", then(lambda s: message(FILL_CONSUMED, s, struct.pack("<Q", start + 65536))), b"message 84")
pour_fails("used up backwards", then(lambda s: message(FILL_CONSUMED, s, struct.pack("<Q", 0))), b"message 84")
pour_fails("a piece wanted again that never went", then(lambda s: message(BULK_BAD, s, struct.pack("<QII", start, 0, 64))), b"message 51")
pour_fails("chunks that aren't all there", then(lambda s: message(CACHE_HELD, 0, struct.pack("<II", 2, 0) + bytes(24))), b"message 49")
pour_fails("a session of its own", then(lambda s: message(ATTACHED, s, struct.pack("<I", 0) + text(""))), b"message 16")
pour_fails("another session", then(lambda s: message(FILL_CONSUMED, s + 1, struct.pack("<Q", start))), b"message 84")
c, b, there = poured(address="127.0.0.1:1")
err, why = told(c)
assert err and b"refused" in why, (err, why)
# A second way takes the place of the first, and the end is told with its number.
c.send(message(POUR, 5, struct.pack("<I", 4) + b"T" * 16 + text(f"127.0.0.1:{there.port}")))
n, lanes = there.link()
yes(n, n.until(FILL_JOIN)[1])
assert told(c, 4)[0] == 0
c.send(message(POUR_END, 5, struct.pack("<I", 4)))
assert struct.unpack_from("<IIQQ", c.until(POUR_ENDED)[2]) == (4, 0, 0, 0)
assert n.is_closed()
lives(c)
for x in [c, b] + lanes:
    x.close()
good_client()

# ---- a broker that comes again while the node still believes in its old link, and brokers that lie of that ----

def attach(c, session, token):
    c.send(message(ATTACH, session, attach_body(grace_ms=20000, token=token)))
    assert c.until(ATTACHED)[1] == session

def resume(c, session, token, frames=0, bulk=0, bits=bytes(256), pid=1, uid=0):
    c.send(message(RESUME, session, token + struct.pack("<IIQQ", pid, uid, frames, bulk) + bits))
    got, number, body = c.until(RESUMED)
    assert number == session
    return struct.unpack_from("<I", body)[0], body

# An echo is asked and answered on the first link; the second has seen nothing: it comes again, once.
token = os.urandom(16)
c1, b1 = link()
attach(c1, 5, token)
ask = frame(kind=1, op=1, flags=1, slot=3, seq=1, payload=bytes(8))
c1.send(message(SPAN, 5, struct.pack("<Q", 0) + ask))
first = c1.until(FRAME)[2]
c2, b2 = link()
end, body = resume(c2, 77, token)
assert end == 0, end
assert c1.is_closed() and b1.is_closed(), "the old link"
at, tail = struct.unpack_from("<QQ", body, 16)
assert at == len(ask), (at, len(ask))
assert c2.until(FRAME)[2] == first
c2.send(message(SPAN, 77, struct.pack("<Q", at) + frame(kind=1, op=1, flags=1, slot=3, seq=2, payload=bytes(8))))
assert c2.until(FRAME)[2] != first
# Lost again, one answer seen, one told of: only the other comes.
c2.send(message(SEEN, 77, struct.pack("<QQ", 1, 0)))
c2.close()
b2.close()
c3, b3 = link()
end, body = resume(c3, 6, token, frames=2)
assert end == 0, end
c3.send(message(SPAN, 6, struct.pack("<Q", 2 * len(ask)) + frame(kind=1, op=1, flags=1, slot=3, seq=3, payload=bytes(8))))
assert struct.unpack_from("<Q", c3.until(FRAME)[2], 16)[0] == 3
# On the link that it is on: a breach.
c3.send(message(RESUME, 9, token + struct.pack("<II", 1, 0) + bytes(16 + 256)))
assert c3.is_closed()
b3.close()

c, b = link()
assert resume(c, 1, os.urandom(16))[0] == 3, "a token of nobody"
# A token in another's hands: it is left alone.
assert resume(c, 2, token, pid=2)[0] == 7, "another process's token"
assert resume(c, 2, token, uid=1)[0] == 7, "another user's token"
# Frames that were never sent: the session ends, not the link.
assert resume(c, 2, token, frames=99)[0] == 4, "frames that were never sent"
assert resume(c, 2, token)[0] == 3, "it is over"
attach(c, 3, token)
c.send(message(SEEN, 3, struct.pack("<QQ", 1 << 40, 0)))
kind, session, body = c.until(ENDED)
assert session == 3 and struct.unpack_from("<I", body)[0] == 4
c.send(message(RESUME, 4, b"short"))
assert c.is_closed(), "a resume cut short"
good_client()
PY
client broker echo 10
daemons_down broker node
same workers 0 "$(count_workers)"
