#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gleamctl top in a terminal (tmux): servers and programs as they work, filter, sort, help, a small window, a daemon that goes
# and comes back, an action that is refused; it leaves the terminal as it was.
# time-limit: 120
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_cmd tmux
need_built bin/gleamctl
ctl=$OUT/bin/gleamctl
export LC_ALL=C.UTF-8
tm() { tmux -S "$TMP/tmux.sock" -f /dev/null "$@"; }
cleanup() { tm kill-server 2>/dev/null; wait_for 5 eval '! tm ls' || true; }
shot() { tm capture-pane -p -t top >"$TMP/shot"; }
# sees REGEX [SECONDS]; sees_not REGEX
sees() { local words=$1; wait_for "${2:-15}" shot_has "$words" || fail "no '$words' on the screen: $(cat "$TMP/shot")"; }
shot_has() { shot && grep -qE -- "$1" "$TMP/shot"; }
shot_lacks() { shot && ! grep -qE -- "$1" "$TMP/shot"; }
sees_not() { local words=$1; wait_for 15 shot_lacks "$words" || fail "'$words' is on the screen: $(cat "$TMP/shot")"; }
keys() { tm send-keys -t top "$@"; }

soft_up --no-fuse --server "attic=127.0.0.1:$(free_port)"
LD_LIBRARY_PATH=$OUT/lib start_bg one "$OUT/tests/cuda/vecadd" 100000 100000 5
LD_LIBRARY_PATH=$OUT/lib start_bg two "$OUT/tests/cuda/vecadd" 1000 1000 2000
wait_for 20 eval '[ "$("$ctl" clients --json | grep -c "\"live\"")" = 2 ]' || fail "no clients: $("$ctl" clients)"

same "not a terminal" 1 "$(status_of "$ctl" top)"
grep -q "top needs a terminal; gleamctl top --batch N" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
"$ctl" top --batch 2 --interval 0.5 >"$TMP/batch"
same "frames" 2 "$(grep -c '^gleamd .* 2 servers, 2 clients' "$TMP/batch")"
# The second frame has rates: one of the programs launches all the time.
between "calls a second" 1 "$(sed -n 's|^calls/s \([0-9]*\) .*|\1|p' "$TMP/batch" | tail -n 1)" 1000000

tm new-session -d -s top -x 150 -y 30 "TERM=\${TERM:-screen} '$ctl' top --interval 0.3; echo \"status \$?\"; exec cat"
sees '^gleamd .* 2 servers, 2 clients'
sees '^lab +ready +[0-9.]+ .* 0 +Gleam Software GPU'
sees '^attic +unreachable .*Connection refused'
sees "^ *$(bg_pid one) .* lab +live +[1-9][0-9]* .*/vecadd$"
sees "^ *$(bg_pid two) .* live +"
# Sorted by calls the busy one is above, reversed below.
wait_for 10 eval 'shot && [ "$(grep -oE "^ *[0-9]+ .*vecadd" "$TMP/shot" | awk "{ print \$1 }" | head -n 1)" = "$(bg_pid one)" ]' ||
	fail "the busy program is not the first: $(cat "$TMP/shot")"
keys r
sees 'sorted by calls, reversed'
wait_for 10 eval 'shot && [ "$(grep -oE "^ *[0-9]+ .*vecadd" "$TMP/shot" | awk "{ print \$1 }" | head -n 1)" = "$(bg_pid two)" ]' ||
	fail "the busy program is not the last: $(cat "$TMP/shot")"
keys r s s
sees 'sorted by waited$'
# A filter, taken away again.
keys / "$(bg_pid two)" Enter
sees 'only `[0-9]+. \(1 hidden\)'
sees_not "^ *$(bg_pid one) "
keys / BSpace BSpace BSpace BSpace BSpace BSpace BSpace BSpace Enter
sees "^ *$(bg_pid one) "
keys '?'
sees 'sort by the next column'
keys x
sees_not 'sort by the next column'
# Windows of all sizes.
tm resize-window -t top -x 60 -y 12
sees '^lab +ready'
tm resize-window -t top -x 20 -y 5
sees 'top needs 40 colu'
tm resize-window -t top -x 200 -y 50
sees "^ *$(bg_pid one) .*/vecadd$"
# An action needs a row of its kind; what a command answers is shown.
keys d
sees 'choose a server first'
keys Tab d
sees 'drain lab'
keys Escape
sees_not 'drain lab \('
keys d
sees 'drain lab'
keys y Enter
sees 'lab gets no new client of this machine'
sees '^lab +drained '
keys u
sees 'take into use again: lab'
keys y Enter
sees 'lab takes new clients again'
sees '^lab +ready '
# A program that ends goes; a daemon that ends is told and looked for again.
stop_bg two KILL || true
sees_not "^ *$(bg_pid two) "
stop_bg one KILL || true
stop_bg client || fail "the daemon ended with $?"
sees 'no gleamd is running there'
start_bg client "$OUT/bin/gleamd" --socket "$TMP/client.sock" --server "lab=127.0.0.1:$PORT" --no-fuse
sees '1 servers, 0 clients'
keys q
sees '^status 0$'
# TERM ends it, too, and a terminal that nobody knows is told.
tm kill-session -t top
tm new-session -d -s top -x 100 -y 24 "TERM=nonsense '$ctl' top; echo \"status \$?\"; exec cat"
sees 'this terminal \(TERM=nonsense\) is not known here'
sees '^status 1$'
tm kill-server
soft_down
