#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tools/setup touches nothing where all is there, installs exactly what is missing as root with apt, and
# prints the exact command otherwise. Played with a PATH of its own, so nothing is really installed.
. "$(dirname "$0")/../lib/e2e.sh"

bin=$TMP/bin
mkdir "$bin"
for tool in sh sed head sort tr cat grep uname ldd make gcc ip ss fusermount3 python3; do
	# (A compiler cache under a compiler's name looks for the compiler itself in PATH.)
	path=$(type -ap "$tool" | grep -v /ccache/ | head -1) && [ "$path" ] || skip "needs the program $tool to play with"
	ln -s "$path" "$bin/$tool"
done
fake() { # NAME < BODY
	{ echo '#!/bin/sh'; cat; } >"$bin/$1"
	chmod +x "$bin/$1"
}
for program in tmux mandoc; do fake $program <<<true; done
fake id <<<"cat $TMP/uid"
fake pkg-config <<<"[ \"\$1\" = --exists ] || exit 2; ! grep -qx -e \"\$2\" -e all $TMP/absent"
setup() { PATH=$bin /bin/sh "$TOP/tools/setup" "$@" >"$TMP/said" 2>&1; }
with_apt() {
	fake apt-cache <<<"[ \"\$1\" != show ] || [ -e $TMP/lists ]"
	fake apt-get <<END
echo "\$DEBIAN_FRONTEND: \$*" >>$TMP/apt
case "\$*" in
*update*) touch $TMP/lists ;;
*install*liburing-dev*) [ -e $TMP/useless ] || : >$TMP/absent ;;
esac
END
	rm -f "$TMP/apt"
}
rc() { status_of setup "$@"; }

echo 0 >"$TMP/uid"
: >"$TMP/absent"
with_apt
same "status with all there" 0 "$(rc check)"
[ ! -e "$TMP/apt" ] || fail "apt was called though nothing is missing"
[ ! -s "$TMP/said" ] || fail "said something though nothing is missing: $(cat "$TMP/said")"
same "status of a target that is none" 2 "$(rc everything)"
same "status without a target" 2 "$(rc)"

# missing, root, apt knows the package: one install, of that package alone
echo liburing >"$TMP/absent"
touch "$TMP/lists"
same "status after an install" 0 "$(rc demo)"
same "what apt was asked" "noninteractive: -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
--no-install-recommends install liburing-dev" "$(cat "$TMP/apt")"

# apt's lists are empty: exactly one update first
echo liburing >"$TMP/absent"
rm "$TMP/lists" "$TMP/apt"
same "status with empty lists" 0 "$(rc demo)"
same "number of updates" 1 "$(grep -c ' update$' "$TMP/apt")"
same "number of installs" 1 "$(grep -c ' install ' "$TMP/apt")"

# an install that does not help is a failure, not a success
echo liburing >"$TMP/absent"
touch "$TMP/useless"
same "status of an install that does not help" 1 "$(rc demo)"
grep -q "in vain" "$TMP/said" || fail "it does not say what is still missing"

# an ordinary user gets the command, apt is not called
echo 1000 >"$TMP/uid"
rm "$TMP/apt"
printf 'liburing\nfuse3\n' >"$TMP/absent"
same "status as a user" 1 "$(rc check)"
grep -qx '  sudo apt-get install -y --no-install-recommends libfuse3-dev liburing-dev' "$TMP/said" ||
	fail "the command is not the exact one: $(cat "$TMP/said")"
[ ! -e "$TMP/apt" ] || fail "apt was called as a user"

# no apt at all, and everything missing: what the demo asks for has nothing of the other targets
rm "$bin/apt-get" "$bin/apt-cache"
echo 0 >"$TMP/uid"
echo all >"$TMP/absent"
rm "$bin/ss"
same "status without apt" 1 "$(rc demo)"
grep -q 'liburing-dev' "$TMP/said" || fail "it does not name the packages"
for word in qemu clang linux-headers busybox cmocka; do
	if grep -q "$word" "$TMP/said"; then fail "the demo asks for $word"; fi
done
