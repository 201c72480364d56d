#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cut is a black hole for as long as was asked, at its time or on command, one way or both; a link can go
# down and come back.
. "$(dirname "$0")/../lib/e2e.sh"
need_root "(a TUN device and network namespaces)"
lanem=$OUT/tests/lab/lanem
need_built tests/lab/lanem
export TMP

# At 2 s for 600 ms (the programs need their time to start on a busy machine): A sends every 5 ms with its own time; B tells the longest gap between two sendings
# that it got.
cat >"$TMP/b.py" <<'END'
import socket, os
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((os.environ["LANEM_B_ADDR"], 4000))
open(os.environ["TMP"] + "/bound", "w").close()
last, gap = None, 0
while True:
    text = s.recv(64)
    if text == b"end":
        break
    now = float(text)
    if last is not None:
        gap = max(gap, now - last)
    last = now
open(os.environ["TMP"] + "/gap.new", "w").write("%.3f" % gap)
os.rename(os.environ["TMP"] + "/gap.new", os.environ["TMP"] + "/gap")
END
cat >"$TMP/a.py" <<'END'
import socket, os, time
while not os.path.exists(os.environ["TMP"] + "/bound"):
    time.sleep(0.01)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + 4
while time.monotonic() < end:
    s.sendto(b"%.6f" % time.monotonic(), (os.environ["LANEM_B_ADDR"], 4000))
    time.sleep(0.005)
while not os.path.exists(os.environ["TMP"] + "/gap"):
    s.sendto(b"end", (os.environ["LANEM_B_ADDR"], 4000))
    time.sleep(0.05)
END
"$lanem" --cut 2000:600 -- python3 "$TMP/a.py" :: python3 "$TMP/b.py"
between "gap (s) made by a cut of 600 ms" 0.55 "$(cat "$TMP/gap")" 1.1

name=e2e-cuts-$$
start_bg lab "$lanem" up --name $name
wait_for 10 grep -qx ready "$TMP/lab.log"
ctl() { "$lanem" ctl --name $name "$@"; }
pings_lost() { "$lanem" measure --name $name --json --pings 3 --seconds 0 | json lost; }
heals() { [ "$(pings_lost)" = "[]" ]; }

same "lost before any cut" "[]" "$(pings_lost)"
ctl cut-ba forever
same "lost with one way cut" "[0, 1, 2]" "$(pings_lost)"
# One way only: what A sent did arrive.
same "packets cut A to B" 0 "$(ctl stats | json ab.cut)"
same "packets cut B to A" 3 "$(ctl stats | json ba.cut)"
ctl uncut
same "lost after the cut" "[]" "$(pings_lost)"

ctl link b down
same "lost with the link down" "[0, 1, 2]" "$(pings_lost)"
ctl link b up
wait_for 5 heals
same "carrier before" 1 "$("$lanem" exec A --name $name --sysfs -- cat /sys/class/net/gl0/carrier)"
ctl carrier a off
same "carrier taken away" 0 "$("$lanem" exec A --name $name --sysfs -- cat /sys/class/net/gl0/carrier)"
ctl carrier a on
ctl cut 2s
same "lost right after a cut of 2 s" "[0]" "$("$lanem" measure --name $name --json --pings 1 --seconds 0 | json lost)"
wait_for 10 heals
"$lanem" down --name $name
