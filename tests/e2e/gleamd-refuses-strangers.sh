#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A wrong secret, an unknown key, cleartext, garbage and silence get nothing but a closed connection and one log line each, at
# a bounded rate; whoever has the key is served meanwhile.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

key_make "$TMP/key"
key_make "$TMP/other"
sed -E 's/[0-9a-f]{64}/00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff/' "$TMP/key" >"$TMP/wrong"
chmod 600 "$TMP/wrong"
node_up node --key "$TMP/key"
broker_up good --key "$TMP/key"
broker_up wrong --key "$TMP/wrong"
broker_up unknown --key "$TMP/other"
broker_up clear
same server gpu "$(client good try)"
for name in wrong unknown clear; do
	out=$(client $name try) && fail "$name was served"
	case $out in "refused 5: "*key*) ;; *) fail "$name: $out" ;; esac
done
log_has node "binder does not verify" || fail "the node's log does not tell of a wrong secret"

# What comes back to bytes that are no TLS: an alert of TLS at most, then the end.
python3 - "$PORT" <<'PY'
import os, socket, sys, time
port = int(sys.argv[1])
def poke(data):
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(10)
    got = b""
    try:
        if data:
            s.sendall(data)
        while True:
            part = s.recv(4096)
            if not part:
                break
            got += part
    except ConnectionError:
        pass
    s.close()
    return got
hello = b"\x10\x00\x00\x00\x01\x00\x00\x00" + bytes(100)
for data in (b"GET / HTTP/1.0\r\n\r\n", os.urandom(3000), hello, b"\x16\x03\x01\x00\x05hello", bytes(100000), b"\x17" * 64):
    got = poke(data)
    assert len(got) <= 7 and got[:1] in (b"", b"\x15"), got
start = time.monotonic()
assert poke(b"") == b""		# silence ends, too
assert 4 < time.monotonic() - start < 8, time.monotonic() - start
for i in range(100):			# a flood: few lines
    poke(b"x" * 20)
# More visitors than there may be wait nowhere.
held = [socket.create_connection(("127.0.0.1", port)) for i in range(100)]
time.sleep(0.3)
for s in held:
    s.close()
PY
lines=$(grep -c 'refused:' "$TMP/node.log")
[ "$lines" -le 60 ] || fail "$lines lines about strangers"
client good echo 50
daemons_down good wrong unknown clear node
