#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Readers walk the tree while programs come and go and a server is lost: they get what is there, or that it is gone; never
# anything else, and never too late. Too many open files are refused.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

tree_or_skip
g=$TMP/gleam
soft_up --mount "$g"
cat >"$TMP/walk.py" <<'PY'
import errno, os, sys, time
top, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
gone, read, slowest = 0, 0, 0.0
clients = set()
while time.monotonic() < end:
    for folder, folders, files in os.walk(top, onerror=lambda e: None if e.errno in (errno.ENOENT, errno.ESTALE) else sys.exit(e)):
        if os.path.basename(os.path.dirname(folder)) == "clients":
            clients.add(folder)
        for name in files:
            began = time.monotonic()
            try:
                with open(os.path.join(folder, name)) as file:
                    text = file.read()
            except OSError as e:
                assert e.errno in (errno.ENOENT, errno.ESTALE), e
                gone += 1
                continue
            slowest = max(slowest, time.monotonic() - began)
            read += 1
            assert text.endswith("\n"), (folder, name, text)
            if name == "metrics":
                assert text.endswith("# EOF\n"), text
                continue
            if name == "decisions":
                assert text.startswith("# number "), text
                continue
            assert text.startswith("# name") == (name == "stats"), (folder, name, text)
            assert name == "stats" or text.count("\n") == 1, (folder, name, text)
print(read, gone, len(clients), "%.3f" % slowest)
PY
for walker in 1 2; do start_bg "walker$walker" python3 "$TMP/walk.py" "$g" 10; done
runs() { local i; for ((i = 0; i < 8; i++)); do program vecadd 1000 3 20 >>"$TMP/runs.$1" 2>&1 || true; done; }
runs 1 & runs 2 & runs 3 &
wait %3 %4 %5
same "results" 24 "$(cat "$TMP"/runs.? | grep -c '^1 passed, 0 failed')"
# A node that hangs holds nobody up who looks.
kill -STOP "$(bg_pid node)"
timeout "$(slow 5)" cat "$g/servers/lab/state" "$g/servers/lab/load" >/dev/null || fail "a reader waits for a node that hangs"
for walker in 1 2; do
	wait "$(bg_pid "walker$walker")" || fail "a walker failed: $(cat "$TMP/walker$walker.log")"
	read -r read gone clients slowest <"$TMP/walker$walker.log"
	say "walker $walker: $read files read, $gone were gone, $clients clients seen, slowest $slowest s"
	[ "$read" -gt 100 ] && [ "$clients" -gt 3 ] || fail "it saw too little"
	between "slowest (s)" 0 "$slowest" 3
done
kill -CONT "$(bg_pid node)"

python3 - "$g/version" <<'PY'
import errno, os, resource, sys
if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 5000:
    sys.exit(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (5000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = []
try:
    while True:
        files.append(os.open(sys.argv[1], os.O_RDONLY))
except OSError as e:
    assert e.errno == errno.ENFILE and len(files) == 4096, (e, len(files))
for file in files:
    os.close(file)
PY
# The last release comes when it comes.
wait_for 5 grep -q . "$g/version" || fail "no file can be opened any more"
soft_down
