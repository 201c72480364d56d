#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One `gleamctl pair` on each of two machines (network namespaces), and a program on one runs on the GPU of the other. Settings
# that people wrote stay; wrong codes, strangers and second attempts get nothing.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"

need_root "(network namespaces)"
[ -e /dev/net/tun ] || skip "needs /dev/net/tun"
need_built bin/gleamd bin/gleam-worker bin/gleamctl lib/libcuda.so.1 lib/libsoftcuda.so tests/cuda/vecadd tests/lab/lanem
lanem=$OUT/tests/lab/lanem ctl=$OUT/bin/gleamctl
log_has() { grep -qE -- "$2" "$TMP/$1.log"; }
at() { "$lanem" exec "$1" --name "pair$$" -- "${@:2}"; }
start_bg lab "$lanem" up --name "pair$$" --rtt 1 --rate 1gbit
wait_for 10 grep -qx ready "$TMP/lab.log" || skip "no lab here: $(tail -n 1 "$TMP/lab.log")"

offer() { # NAME [OPTION...]: gleamctl pair on the machine with the GPU; its code in $code
	local name=$1
	start_bg "$name" "$lanem" exec B --name "pair$$" -- "$ctl" pair --config "$TMP/b/gleam.conf" "${@:2}"
	wait_for 10 log_has "$name" "gleamctl pair 198.18.0.2.* --code [A-Z2-9-]{23}$" || fail "$(cat "$TMP/$name.log")"
	code=$(sed -n 's/.* --code \([A-Z2-9-]*\)$/\1/p' "$TMP/$name.log" | head -n 1)
}
join() { status_of at A "$ctl" pair --config "$TMP/a/gleam.conf" --socket "$TMP/a.sock" "$@"; }
said() { grep -qE -- "$1" "$TMP/status.out" || fail "it does not say '$1': $(cat "$TMP/status.out")"; }

# --- settings that are there stay
mkdir "$TMP/b"
printf '# the machine in the cellar\n[node]\ndriver = softgpu ; no GPU yet\n[tree]\nmount = no\n' >"$TMP/b/gleam.conf"
mkdir "$TMP/a"
printf '[tree]\nmount = no\n# nothing else' >"$TMP/a/gleam.conf"
offer first
grep -q '^# the machine in the cellar$' "$TMP/b/gleam.conf" || fail "a comment is gone: $(cat "$TMP/b/gleam.conf")"
grep -q '^driver = softgpu ; no GPU yet$' "$TMP/b/gleam.conf" || fail "a setting is changed: $(cat "$TMP/b/gleam.conf")"
grep -q '^listen = 0.0.0.0:4711$' "$TMP/b/gleam.conf" || fail "no listen: $(cat "$TMP/b/gleam.conf")"
same "mode of the key" 600 "$(stat -c %a "$TMP/b/key")"

# --- who has no code gets nothing; typing errors are told
same "no code at all" 2 "$(join 198.18.0.2 --code HELLO)"
said "that is no code: four groups of five letters"
same "a wrong code" 1 "$(join 198.18.0.2 --code AAAAA-AAAAA-AAAAA-AAAAA)"
said "the other machine does not take this code"
at A python3 -c 'import socket
s = socket.create_connection(("198.18.0.2", 4712))
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
try:
    assert len(s.recv(4096)) < 64 and not s.recv(4096)
except ConnectionResetError:
    pass' || fail "a stranger is answered"
[ ! -e "$TMP/a/key" ] || fail "a key was written"
same "nobody there" 1 "$(join 198.18.0.2:4713 --code "$code")"
said "Connection refused; does .gleamctl pair. wait there"

# --- the code, as people type it, through standard input
status=0
tr 'A-Z-' 'a-z ' <<<"$code" | at A "$ctl" pair 198.18.0.2 --config "$TMP/a/gleam.conf" --name cellar >"$TMP/status.out" 2>&1 || status=$?
same "joined" 0 "$status"
said "Paired with "
said "Start gleamd again"
wait "$(bg_pid first)" || fail "the other side: $(cat "$TMP/first.log")"
log_has first "Paired with " || fail "$(cat "$TMP/first.log")"
log_has first "somebody has called with another code" || fail "$(cat "$TMP/first.log")"
grep -q '^cellar = 198.18.0.2:4711$' "$TMP/a/gleam.conf" || fail "no server: $(cat "$TMP/a/gleam.conf")"
grep -q '^# nothing else$' "$TMP/a/gleam.conf" || fail "a comment is gone: $(cat "$TMP/a/gleam.conf")"
cmp "$TMP/a/key" "$TMP/b/key" || fail "the keys differ"
same "mode of the key" 600 "$(stat -c %a "$TMP/a/key")"
# A code is good once.
same "the code again" 1 "$(join 198.18.0.2 --code "$code")"
said "Connection refused"
! grep -rq "$(awk '{ print $4 }' "$TMP/a/key")" "$TMP/first.log" "$TMP/status.out" || fail "the secret is printed"

# --- and it works
start_bg node "$lanem" exec B --name "pair$$" -- "$OUT/bin/gleamd" --config "$TMP/b/gleam.conf" --socket "$TMP/b.sock"
wait_for 20 log_has node "is warm" || fail "$(cat "$TMP/node.log")"
start_bg client "$lanem" exec A --name "pair$$" -- "$OUT/bin/gleamd" --config "$TMP/a/gleam.conf" --socket "$TMP/a.sock"
wait_for 20 log_has client "is ready" || fail "$(cat "$TMP/client.log")"
at A "$ctl" run --socket "$TMP/a.sock" --server cellar -- "$OUT/tests/cuda/vecadd" 1000 >"$TMP/run.out" || fail "$(cat "$TMP/run.out" "$TMP/client.log")"
at A "$ctl" doctor --socket "$TMP/a.sock" --config "$TMP/a/gleam.conf" >"$TMP/doctor.out" || fail "$(cat "$TMP/doctor.out")"
# A machine that is busy with other tests may be far away for a moment.
grep -qE '^server *(ok *cellar .* TLS|warn *cellar is [0-9.]+ ms away)' "$TMP/doctor.out" || fail "$(cat "$TMP/doctor.out")"

# --- a machine that has a key of its own keeps it: the server takes it as one more tenant
mkdir "$TMP/c"
"$ctl" key new --tenant guests "$TMP/c/key" >/dev/null
sum=$(sha256sum <"$TMP/c/key")
offer second --listen 198.18.0.2:5555
same "joined with a key" 0 "$(status_of at A "$ctl" pair 198.18.0.2:5555 --config "$TMP/c/gleam.conf" --code "$code")"
wait "$(bg_pid second)" || fail "the other side: $(cat "$TMP/second.log")"
same "its key" "$sum" "$(sha256sum <"$TMP/c/key")"
same "tenants of the server" "default guests" "$("$ctl" key show --json "$TMP/b/key" | python3 -c 'import json, sys
print(" ".join(key["tenant"] for key in json.load(sys.stdin)["keys"]))')"
grep -q '^listen = 0.0.0.0:4711$' "$TMP/b/gleam.conf" || fail "listen has changed: $(cat "$TMP/b/gleam.conf")"
grep -q "^file = $TMP/c/key$" "$TMP/c/gleam.conf" || fail "no key file: $(cat "$TMP/c/gleam.conf")"

# --- whoever waits in a terminal sees that it goes on; Ctrl-C leaves nothing
if command -v tmux >/dev/null; then
	port=$(free_port)
	tm() { tmux -S "$TMP/tmux.sock" -f /dev/null "$@"; }
	tm new-session -d -s wait -x 100 -y 24 "'$ctl' pair --config '$TMP/b/gleam.conf' --listen 127.0.0.1:$port; echo \"status \$?\"; exec cat"
	shows() { tm capture-pane -p -t wait | grep -qE -- "$1"; }
	wait_for 10 shows '^waiting for the other machine, [1-9][0-9]* s' || fail "no progress: $(tm capture-pane -p -t wait)"
	tm send-keys -t wait C-c
	wait_for 5 eval '! pgrep -f "pair --config $TMP/b/gleam.conf --listen 127.0.0.1:$port"' || fail "it does not end"
	tm kill-server 2>/dev/null || true # Ctrl-C has ended the window, and with it tmux
fi

# --- what goes wrong is told, and nothing is half done
offer third
sum=$(sha256sum <"$TMP/a/gleam.conf")
same "a name that can't be" 1 "$(join 198.18.0.2 --code "$code" --name 'a/b')"
said "can't be a server's name; choose a name with --name"
status=0
wait "$(bg_pid third)" || status=$?
same "the other side's status" 1 "$status"
log_has third "it could not write its settings" || fail "$(cat "$TMP/third.log")"
same "settings" "$sum" "$(sha256sum <"$TMP/a/gleam.conf")"
# Somebody who tries codes is cut off.
offer fourth
for _ in 1 2 3 4; do same "a wrong code" 1 "$(join 198.18.0.2 --code AAAAA-AAAAA-AAAAA-AAAAA)"; done
same "the fifth" 1 "$(join 198.18.0.2 --code AAAAA-AAAAA-AAAAA-AAAAA)"
status=0
wait "$(bg_pid fourth)" || status=$?
same "after five wrong codes" 1 "$status"
log_has fourth "somebody has tried 5 wrong codes" || fail "$(cat "$TMP/fourth.log")"
printf '[node]\nheight = 7\n' >"$TMP/b/gleam.conf"
same "settings that nobody can read" 1 "$(status_of at B "$ctl" pair --config "$TMP/b/gleam.conf")"
said "gleam.conf:[0-9]+: .*correct that first"
stop_bg client
stop_bg node
stop_bg lab || true
