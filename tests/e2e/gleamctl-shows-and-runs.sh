#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gleamctl tells people and programs what the daemon knows, starts programs on the server that is asked for, and makes keys
# that the daemons take.
# time-limit: 90
. "$(dirname "$0")/../lib/e2e.sh"
. "$(dirname "$0")/../lib/soft.sh"

need_built bin/gleamctl
ctl=$OUT/bin/gleamctl
says() { grep -qE -- "$2" "$TMP/$1.out" || fail "$1 lacks '$2': $(cat "$TMP/$1.out")"; }
unset LD_LIBRARY_PATH

# --- keys
"$ctl" key new --tenant lab.1 "$TMP/key" >"$TMP/new.out"
says new "$TMP/key: a new key, tenant lab.1, id [0-9a-f]{16}"
says new "scp -p $TMP/key root@SERVER:/etc/gleam/key"
same "mode" 600 "$(stat -c %a "$TMP/key")"
secret=$(awk '{ print $4 }' "$TMP/key")
id=$(awk '{ print $3 }' "$TMP/key")
! grep -q "$secret" "$TMP/new.out" || fail "the secret is printed"
sum=$(sha256sum <"$TMP/key")
same "an existing file" 1 "$(status_of "$ctl" key new "$TMP/key")"
grep -q "is there already and is not overwritten" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
same "the key" "$sum" "$(sha256sum <"$TMP/key")"
same "shown" "tenant lab.1, id $id" "$("$ctl" key show "$TMP/key")"
"$ctl" key show --json "$TMP/key" >"$TMP/show.out"
! grep -q "$secret" "$TMP/show.out" || fail "the secret is shown"
same "id" "$id" "$(json keys.0.id <"$TMP/show.out")"
# A user's own place, with its folders.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && setpriv --reuid 65534 --clear-groups test -x "$ctl"; then
	mkdir "$TMP/home"
	chown 65534 "$TMP/home"
	HOME=$TMP/home setpriv --reuid 65534 --clear-groups env -u XDG_CONFIG_HOME "$ctl" key new >"$TMP/home.out"
	same "mode of the user's" "600 65534" "$(stat -c '%a %u' "$TMP/home/.config/gleam/key")"
fi

# --- two servers: one is this node, one is not there
node_start_with_key() {
	start_bg node "$OUT/bin/gleamd" --socket "$TMP/node.sock" --listen "127.0.0.1:$PORT" --driver softgpu --no-fuse \
		--key "$TMP/key"
	wait_for 20 log_has node "is ready" || fail "$(cat "$TMP/node.log")"
}
PORT=$(free_port)
node_start_with_key
client_start --no-fuse --key "$TMP/key" --server "attic=127.0.0.1:$(free_port)"
ready() { "$ctl" servers --json >"$TMP/servers.json" && grep -q '"load": 0.0' "$TMP/servers.json"; }
wait_for 10 ready || fail "$(cat "$TMP/servers.json")"
same "names" "lab attic" "$(json servers.0.name <"$TMP/servers.json") $(json servers.1.name <"$TMP/servers.json")"
same "state" ready "$(json servers.0.state <"$TMP/servers.json")"
same "GPU" "Gleam Software GPU" "$(json servers.0.gpus.0.name <"$TMP/servers.json")"
"$ctl" servers >"$TMP/servers.out"
says servers '^NAME +STATE +ADDRESS +LOAD +RTT ms +CLIENTS +LINK +GPUS$'
says servers "^lab +ready +127.0.0.1:$PORT +0.00 +[0-9.]+ +0 +TLS +1 x Gleam Software GPU, [0-9]+ MiB$"
says servers '^attic +unreachable .* - +0 +- +-$'
says servers '^attic: .*Connection refused'
"$ctl" clients >"$TMP/clients.out"
says clients 'no clients: .*gleamctl run -- PROGRAM'

# --- run: the library is found, the server is the one asked for, the status is the program's
"$ctl" run --server lab -- "$OUT/tests/cuda/vecadd" 1000 >"$TMP/run.out" || fail "run: $(cat "$TMP/run.out")"
says run "1 passed, 0 failed"
same "another server" 1 "$(status_of "$ctl" run --server attic "$OUT/tests/cuda/vecadd" 1000)"
log_has client "attic: .*Connection refused" || fail "the log has no word of attic"
same "a server of no name" 1 "$(status_of "$ctl" run --server=moon -- "$OUT/tests/cuda/vecadd" 1000)"
log_has client "GLEAM_SERVER=moon: gleamd has no server of this name" || fail "the log has no word of moon"
same "status" 7 "$(status_of "$ctl" run -- sh -c 'exit 7')"
same "options of the program" "--server x" "$("$ctl" run echo --server x)"
same "no program" 127 "$(status_of "$ctl" run -- "$TMP/nothing")"
same "not a program" 126 "$(status_of "$ctl" run -- "$TMP/key")"
folder=$("$ctl" run -- sh -c 'echo $LD_LIBRARY_PATH')
[ -e "$folder/libcuda.so.1" ] || fail "LD_LIBRARY_PATH is $folder"
same "what was in LD_LIBRARY_PATH" "$folder:/opt/x" "$(LD_LIBRARY_PATH=/opt/x "$ctl" run -- sh -c 'echo $LD_LIBRARY_PATH')"
same "priority and GPUs" "batch 2" "$("$ctl" run --priority batch --gpus 2 -- sh -c 'echo $GLEAM_PRIORITY $GLEAM_GPUS')"
same "socket" /run/x "$("$ctl" run --socket /run/x -- sh -c 'echo $GLEAM_SOCKET')"
# A pipe that closes ends a program as it would without us.
same "SIGPIPE" 141 "$("$ctl" run -- bash -c '(sleep 0.2; kill -PIPE $BASHPID); echo $?')"

# --- a client
start_bg held "$ctl" run -- "$OUT/tests/cuda/vecadd" 1000 4 2000
pid=$(bg_pid held)
launched() { "$ctl" stats "$pid" --json >"$TMP/stats.json" && grep -q cuLaunchKernel "$TMP/stats.json"; }
wait_for 20 launched || fail "$(cat "$TMP/held.log")"
python3 - "$TMP/stats.json" "$pid" <<'PY'
import json, sys
client = json.load(open(sys.argv[1]))
assert client["pid"] == int(sys.argv[2]) and client["server"] == "lab" and client["state"] == "live", client
calls = {one["name"]: one for one in client["api"]}
assert 1 <= calls["cuLaunchKernel"]["calls"] <= 4 and calls["cuLaunchKernel"]["round_trips"] == 0, calls
assert calls["cuMemAlloc_v2"]["calls"] == 3, calls
assert sum(one["calls"] for one in client["api"]) - client["calls"] in (-1, 0, 1), client
assert client["memory"] == 12000, client["memory"]
PY
"$ctl" stats "$pid" >"$TMP/stats.out"
says stats "^.*/vecadd, pid $pid, on lab, live$"
says stats '^FUNCTION +CALLS +BYTES +TRIPS +WAITED ms +P50 us +P99 us$'
says stats '^cuMemcpyHtoD_v2 +2 +8[0-9]+ +0 +[0-9.]+ +[0-9.]+ +[0-9.]+$'
"$ctl" clients >"$TMP/clients.out"
says clients '^ *PID +UID +SERVER +STATE +CALLS +TRIPS +WAITED ms +MEMORY MiB +AGE s +PROGRAM$'
says clients "^ *$pid +$(id -u) +lab +live .*/vecadd$"
"$ctl" status >"$TMP/status.out"
cp "$TMP/status.out" "$TMP/state.out"
says state '^gleamd .* \(protocol .*\), pid [0-9]+, up '
says state "^ *$pid "
"$ctl" status --json | json client_count | grep -qx 1 || fail "status --json"
"$ctl" status --socket "$TMP/node.sock" >"$TMP/node.out"
says node "^offers the GPUs of this machine on 127.0.0.1:$PORT: 1 of [0-9]+ clients, .* driver .*/libsoftcuda.so$"
says node '^  GPU 0: Gleam Software GPU, [0-9]+ MiB$'
says node '^no servers configured: add one to /etc/gleam/gleam.conf under \[servers\]'
# Whoever closes the pipe has seen enough.
same "a closed pipe" 0 "$( (set +o pipefail; trap '' PIPE; "$ctl" status; echo $? >&3) 3>"$TMP/pipe.status" | true; cat "$TMP/pipe.status")"
if [ -e /dev/full ]; then
	same "a full disk" 1 "$(status_of sh -c "'$ctl' status >/dev/full")"
	grep -q "can't write the output" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
fi
"$ctl" version >"$TMP/version.out"
says version '^gleamctl '
says version '^gleamd .* \(protocol '
"$ctl" version --json | json gleamd.version >/dev/null
stop_bg held KILL || true
soft_down
same "no daemon" 1 "$(status_of "$ctl" status)"
grep -q "no gleamd is running there: start it" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
same "version without a daemon" 0 "$(status_of "$ctl" version)"
grep -q "gleamd is not running at" "$TMP/status.out" || fail "$(cat "$TMP/status.out")"
