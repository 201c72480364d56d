#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A name with two addresses of which the first is dead (it takes no connection and refuses none) costs less than a second; of two
# servers the second is used when the first is down, and GLEAM_SERVER picks one.
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../fake/daemons.sh"

node_up node
start_bg two "$OUT/bin/gleamd" --socket "$TMP/two.sock" --server "down=127.0.0.1:$(free_port)" \
	--server "up=127.0.0.1:$PORT" --no-fuse
wait_for 10 log_has two "is ready"
same "server without a wish" up "$(client two try)"
same "the wished server" up "$(FAKE_SETTINGS=GLEAM_SERVER=up client two try)"
out=$(FAKE_SETTINGS=GLEAM_SERVER=down client two try) && fail "served by a server that is down"
case $out in "refused 5: no server: down: "*refused*) ;; *) fail "$out" ;; esac
daemons_down two

# A name with two addresses: in a mount namespace with a hosts file of ours.
[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { daemons_down node; skip "a hosts file of one's own needs root"; }
printf '::1 two.test\n127.0.0.1 two.test\n' >"$TMP/hosts"
# A listener whose queue is full answers no SYN.
start_bg dead python3 -c "import socket, time
s = socket.socket(socket.AF_INET6); s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
s.bind(('::1', $PORT)); s.listen(0)
cs = []
for i in range(8):
    c = socket.socket(socket.AF_INET6); c.setblocking(False); c.connect_ex(('::1', $PORT)); cs.append(c)
print('full', flush=True); time.sleep(60)"
wait_for 5 log_has dead full
start_bg name unshare -m sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$TMP/hosts" "$OUT/bin/gleamd" --socket "$TMP/name.sock" --server "gpu=two.test:$PORT" --no-fuse
wait_for 10 log_has name "is ready"
before=$(now_ns)
same "server by name" gpu "$(client name try)"
ms=$((($(now_ns) - before) / 1000000))
say "$ms ms with a dead first address"
[ "$ms" -lt 1000 ] || fail "a dead address cost $ms ms"
daemons_down name node
