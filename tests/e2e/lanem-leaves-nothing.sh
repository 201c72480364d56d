#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# However a lab ends, nothing of it stays; a killed one is cleared by the next of its name. Exit statuses
# and messages of what goes wrong.
. "$(dirname "$0")/../lib/e2e.sh"
need_root "(a TUN device and network namespaces)"
lanem=$OUT/tests/lab/lanem
need_built tests/lab/lanem
name=e2e-leaves-$$

nothing_left() {
	[ ! -e /run/netns/$name-a ] && [ ! -e /run/netns/$name-b ] || fail "$1: a namespace has its name yet"
	[ ! -e /run/lanem/$name.lock ] && [ ! -e /run/lanem/$name.sock ] || fail "$1: lock or socket is left"
	if pgrep -f "^sleep 7654" >/dev/null; then fail "$1: a program of the lab still runs"; fi
	if ip link show gl0 >/dev/null 2>&1; then fail "$1: its interface is in our namespace"; fi
}

# the program's own status is passed on; it sees the names, and `ip netns` knows them
same "status of a program" 5 "$(status_of "$lanem" --name $name -- sh -c '
	[ "$LANEM_A" = '$name'-a ] && [ "$LANEM_B_ADDR" = 198.18.0.2 ] || exit 1
	"$LANEM" exec A -- sh -c "exit 5"')"
nothing_left "after a program"
if command -v ip >/dev/null; then
	"$lanem" --name $name -- sh -c 'ip netns exec "$LANEM_B" ip -o addr show gl0' | grep -q 198.18.0.2/30 ||
		fail "ip netns does not see the namespace"
	"$lanem" exec A --name none -- true 2>"$TMP/err" && fail "exec in no lab worked"
	grep -q "no lab listens" "$TMP/err" || fail "wrong message: $(cat "$TMP/err")"
fi
same "status of A" 7 "$(status_of "$lanem" --name $name -- sh -c 'exit 7' :: sleep 76541)"
nothing_left "after A's end"
same "status of a program that is none" 127 "$(status_of "$lanem" --name $name -- /no/such/program)"
nothing_left "after a program that is none"

# TERM and HUP in the middle, also with daemons inside that hide in a session of their own
for signal in TERM HUP; do
	start_bg lab "$lanem" --name $name -- sh -c '"$LANEM" exec A -- setsid sleep 76542 & sleep 76543'
	wait_for 10 pgrep -f '^sleep 76542'
	status=0
	stop_bg lab $signal || status=$?
	same "status after SIG$signal" $((128 + $(kill -l $signal))) "$status"
	nothing_left "after SIG$signal"
done

start_bg lab "$lanem" up --name $name
wait_for 10 grep -qx ready "$TMP/lab.log"
same "status of a second lab of that name" 1 "$(status_of "$lanem" up --name $name)"
grep -q "runs already" "$TMP/status.out" || fail "wrong message: $(cat "$TMP/status.out")"
stop_bg lab || fail "up ended with $? after TERM"
nothing_left "after up"

# killed without a chance: the names are stale, the next one clears them and works
start_bg lab "$lanem" up --name $name
wait_for 10 grep -qx ready "$TMP/lab.log"
stop_bg lab KILL || true
[ -e /run/netns/$name-a ] || fail "a killed lab left no name: this test shows nothing"
"$lanem" --name $name --measure --pings 3 --seconds 0 >/dev/null
nothing_left "after a killed one and another"

# a stranger on the control socket does not stop the wire
start_bg lab "$lanem" up --name $name
wait_for 10 grep -qx ready "$TMP/lab.log"
python3 - /run/lanem/$name.sock <<'END'
import socket, sys
idle = []
for text in [b"", b"x" * 5000, b"\0\xff" * 20, b"cut", b"link", b"rate 1 2 3 4 5", b"cut 1 2", b"loss 2", b"link c up"]:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(5)
    s.connect(sys.argv[1])
    s.send(text) if text else s.close()
    assert not text or not s.recv(4096).startswith(b"ok"), text
for _ in range(40):  # more than it has room for, none of which ever asks
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.setblocking(False)
    try:
        s.connect(sys.argv[1])
    except BlockingIOError:
        break
    idle.append(s)
END
same "lost after strangers" "[]" "$("$lanem" measure --name $name --json --pings 3 --seconds 0 | json lost)"
"$lanem" down --name $name
nothing_left "after down"

for words in "" "--rate fast -- true" "--fly 1 -- true" "--name ../x -- true" "--rtt" "-- :: true" "--mtu 5 -- true" \
	"--cut 5 -- true" "--at 5:fly -- true" "exec C -- true" "ctl --name x" "true"; do
	# shellcheck disable=SC2086
	same "status of 'lanem $words'" 2 "$(status_of "$lanem" $words)"
done
same "status of a congestion control that is none" 1 "$(status_of "$lanem" --congestion nonesuch -- true)"
grep -q "congestion control" "$TMP/status.out" || fail "wrong message: $(cat "$TMP/status.out")"
