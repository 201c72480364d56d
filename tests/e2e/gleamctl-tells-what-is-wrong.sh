#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Wrong usage of gleamctl is one line that says what and where to look, and status 2; a misspelt command gets the right one.
. "$(dirname "$0")/../lib/e2e.sh"

need_built bin/gleamctl
ctl=$OUT/bin/gleamctl
export GLEAM_SOCKET=$TMP/nobody.sock

# wrong STATUS WORDS -- ARGUMENT...
wrong() {
	local want=$1 words=$2
	shift 3
	same "status of gleamctl $*" "$want" "$(status_of "$ctl" "$@")"
	same "lines of gleamctl $*" 1 "$(wc -l <"$TMP/status.out")"
	grep -qF -- "gleamctl: $words" "$TMP/status.out" || fail "gleamctl $*: $(cat "$TMP/status.out")"
}

wrong 2 '`statsu` is not a command; did you mean `status`?; see gleamctl --help' -- statsu
wrong 2 '`sevrers` is not a command; did you mean `servers`?' -- sevrers
wrong 2 '`client` is not a command; did you mean `clients`?' -- client
wrong 2 '`keys` is not a command; did you mean `key`?' -- keys
wrong 2 '`xyzzy` is not a command; see gleamctl --help' -- xyzzy
wrong 2 '`` is not a command; see' -- ''
wrong 2 '`--json` is not an option here: the command comes first' -- --json status
wrong 2 '`--fly` is not an option of status; see gleamctl status --help' -- status --fly
wrong 2 '`-x` is not an option of status' -- status -x
wrong 2 '`--server` is not an option of status' -- status --server lab
wrong 2 '`--server=lab` is not an option of status' -- status --server=lab
wrong 2 '`--tenant` is not an option of run' -- run --tenant x -- true
wrong 2 '`--json` is not an option of run' -- run --json -- true
wrong 2 '--socket needs a value' -- status --socket
wrong 2 '`extra` is one word too many' -- servers extra
wrong 2 'stats needs PID' -- stats
wrong 2 '`12x` is not a process number' -- stats 12x
wrong 2 '`-1` is not an option of stats' -- stats -1
wrong 2 '`0` is not a process number' -- stats 0
wrong 2 '`99999999999` is not a process number' -- stats 99999999999
wrong 2 'key needs new or show' -- key
wrong 2 '`0` is not a number of frames' -- top --batch 0
wrong 2 '`x` is not a number of seconds from 0.1 to 3600' -- top --interval x
wrong 2 '`0.01` is not a number of seconds' -- top --batch 1 --interval 0.01
wrong 1 "$TMP/nobody.sock: No such file or directory; no gleamd is running there: start it" -- top --batch 1
wrong 2 '`--json` is not an option of top' -- top --json
wrong 2 '--code and --name go with the ADDRESS of the machine that waits' -- pair --code x --config "$TMP/none.conf"
wrong 2 '--listen and --tenant are for the machine that is called' -- pair --listen :: 10.0.0.1 --config "$TMP/none.conf"
wrong 2 '`a b` is not an address' -- pair 'a b' --code AAAAA-AAAAA-AAAAA-AAAAA --config "$TMP/none.conf"
wrong 2 'that is no code: four groups of five letters' -- pair 127.0.0.1 --code x --config "$TMP/none.conf"
wrong 2 '--listen nowhere: an address, not a name' -- pair --listen nowhere --config "$TMP/none.conf"
wrong 2 '--sessions and --memory go with limit WHO' -- kernel --sessions 3
wrong 2 '`limits` is not limit' -- kernel limits uid:0
wrong 2 'limit needs WHO: uid:USER, cgroup:PATH or all' -- kernel limit
wrong 2 '`gid:0` is none of uid:USER, cgroup:PATH, all' -- kernel limit gid:0
wrong 2 '--sessions `-1` is neither a number nor none' -- kernel limit all --sessions=-1
wrong 2 '--memory `99999999999999999999` is neither a number nor none' -- kernel limit all --memory 99999999999999999999
wrong 1 'there is no user nobody-of-this-name' -- kernel limit uid:nobody-of-this-name
wrong 1 '/sys/fs/cgroup/not/there: No such file or directory' -- kernel limit cgroup:not/there
if ! [ -e /sys/class/misc/gleam ]; then
	wrong 1 'the kernel module is not loaded (it is optional): modprobe gleam' -- kernel
	wrong 1 'the kernel module is not loaded' -- kernel limit all
fi
wrong 2 '`tcsh` is none of bash, zsh, fish' -- completion tcsh
wrong 2 'completion needs bash|zsh|fish' -- completion
wrong 2 '`x` is one word too many' -- doctor x
wrong 2 '`old` is neither new nor show' -- key old
wrong 2 '--tenant is for key new' -- key show --tenant x "$TMP/key"
wrong 2 "\`a b\` can't be a tenant's name: letters, digits" -- key new --tenant 'a b' "$TMP/key"
wrong 2 'run needs -- PROGRAM [ARGUMENT...]' -- run
wrong 2 '--gpus `0` is neither a number from 1 nor all' -- run --gpus 0 -- true
wrong 2 '--gpus `two` is neither a number from 1 nor all' -- run --gpus two -- true
wrong 2 '--priority `high` is none of latency, normal, batch' -- run --priority high -- true
wrong 2 'run needs -- PROGRAM [ARGUMENT...]' -- run --server lab --
wrong 1 "$TMP/nobody.sock: No such file or directory; no gleamd is running there: start it" -- status
wrong 1 "$TMP/other.sock: No such file" -- clients --socket "$TMP/other.sock"
wrong 1 "can't write $TMP/nowhere/key: No such file or directory; make its folder first" -- key new "$TMP/nowhere/key"
wrong 1 "$TMP/key: can't read the key: No such file" -- key show "$TMP/key"
[ ! -e "$TMP/key" ] || fail "a key was made"
echo nonsense >"$TMP/bad"
chmod 600 "$TMP/bad"
wrong 1 "$TMP/bad:1: not a key; a line is" -- key show "$TMP/bad"
chmod 644 "$TMP/bad"
wrong 1 "$TMP/bad: others may read this key (mode 644); chmod 600" -- key show "$TMP/bad"
long=$TMP/$(printf 'x%.0s' $(seq 200))
wrong 1 "$long: a socket's path has at most 107 characters" -- status --socket "$long"

# Who may not: another user, a folder that is closed.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && setpriv --reuid 65534 --clear-groups test -x "$ctl"; then
	mkdir -m 700 "$TMP/closed"
	user() { setpriv --reuid 65534 --regid 65534 --clear-groups env -u GLEAM_SOCKET HOME=/nonexistent "$ctl" "$@"; }
	refused() {
		local words=$1
		shift 2
		same "status of a user's gleamctl $*" 1 "$(status_of user "$@")"
		same "lines of a user's gleamctl $*" 1 "$(wc -l <"$TMP/status.out")"
		grep -qF -- "gleamctl: $words" "$TMP/status.out" || fail "a user's gleamctl $*: $(cat "$TMP/status.out")"
	}
	for command in status servers clients "stats 1" "top --batch 1"; do
		refused "$TMP/closed/sock: Permission denied; you may not talk to this daemon" -- $command --socket "$TMP/closed/sock"
	done
	refused "can't write $TMP/closed/key: Permission denied; be root, or name a file of your own" -- key new "$TMP/closed/key"
	refused "$TMP/closed/gleam.conf: Permission denied" -- pair --config "$TMP/closed/gleam.conf"
	rmdir "$TMP/closed"
fi

# Something that isn't gleamd: closes, is silent, says nonsense.
serve() {
	python3 - "$TMP/$1.sock" "$1" <<'PY' &
import socket, struct, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
s.listen(8)
while True:
    c, _ = s.accept()
    request = c.recv(65536)
    kind = sys.argv[2]
    def packet(text, more=0, kind=17):
        b = text.encode()
        return struct.pack("<III", kind, more, len(b)) + b + b"\0"
    if kind == "short":
        c.send(b"\x11")
    elif kind == "lies":
        c.send(struct.pack("<III", 17, 0, 0xffffffff) + b"x")
    elif kind == "words":
        c.send(packet("certainly not JSON"))
    elif kind == "partial":
        c.send(packet('{"servers": [', 1))
    elif kind == "refuses":
        c.send(packet('{"error": "go away"}'))
    elif kind == "odd":
        c.send(packet('{"servers": 7, "clients": [{"pid": "x", "program": 3}, 5], "version": null}'))
    if kind == "silent":
        time.sleep(30)
    c.close()
PY
	E2E_NAMES+=("$1") E2E_PIDS+=($!)
	: >"$TMP/$1.log"
	wait_for 5 test -S "$TMP/$1.sock"
}
for kind in short lies words partial refuses odd closes silent; do serve "$kind"; done
wrong 1 "the daemon's answer can't be read" -- status --socket "$TMP/short.sock"
wrong 1 "the daemon's answer can't be read" -- status --socket "$TMP/lies.sock"
wrong 1 "the daemon's answer is not JSON" -- status --socket "$TMP/words.sock"
wrong 1 "the daemon closed the connection" -- status --socket "$TMP/partial.sock"
wrong 1 "the daemon closed the connection" -- status --socket "$TMP/closes.sock"
wrong 1 "go away" -- status --socket "$TMP/refuses.sock"
wrong 1 "the daemon does not answer" -- status --socket "$TMP/silent.sock"
# Values of other types are as good as absent.
for command in status servers clients "top --batch 1"; do
	same "odd values in $command" 0 "$(status_of "$ctl" $command --socket "$TMP/odd.sock")"
done
same "help" 0 "$(status_of "$ctl" --help)"
same "no command" 2 "$(status_of "$ctl")"
