#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same seed loses the same packets, another seed others; reordering is seen by the receiver.
. "$(dirname "$0")/../lib/e2e.sh"
need_root "(a TUN device and network namespaces)"
lanem=$OUT/tests/lab/lanem
need_built tests/lab/lanem

lost() { # SEED
	"$lanem" --loss 8% --seed "$1" --measure --json --pings 120 --seconds 0 | json lost
}

first=$(lost 5)
same "lost with the same seed" "$first" "$(lost 5)"
[ "$first" != "[]" ] || fail "nothing was lost of 120 at 8 % each way"
[ "$first" != "$(lost 6)" ] || fail "another seed lost the same: $first"

# A sends numbers, B tells how many came after a higher one.
cat >"$TMP/b.py" <<'END'
import socket, os
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((os.environ["LANEM_B_ADDR"], 4000))
open(os.environ["TMP"] + "/bound", "w").close()
s.settimeout(2)
seen = []
while len(seen) < 300:
    seen.append(int(s.recv(64)))
late = sum(1 for i, n in enumerate(seen) if i and n < max(seen[:i]))
open(os.environ["TMP"] + "/late.new", "w").write("%d %d\n" % (len(set(seen)), late))
os.rename(os.environ["TMP"] + "/late.new", os.environ["TMP"] + "/late")
END
cat >"$TMP/a.py" <<'END'
import socket, os, time
while not os.path.exists(os.environ["TMP"] + "/bound"):
    time.sleep(0.01)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(300):
    s.sendto(b"%d" % n, (os.environ["LANEM_B_ADDR"], 4000))
    time.sleep(0.001)
end = time.monotonic() + 5
while time.monotonic() < end and not os.path.exists(os.environ["TMP"] + "/late"):
    time.sleep(0.01)
END
export TMP
"$lanem" --reorder 10% --hold 20 -- python3 "$TMP/a.py" :: python3 "$TMP/b.py"
read -r count late <"$TMP/late"
same "numbers that arrived" 300 "$count"
between "numbers that were overtaken" 5 "$late" 70
