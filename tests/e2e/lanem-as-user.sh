#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An ordinary user has a lab of its own by a user namespace where the TUN device may be opened, and a clear
# message where it may not.
. "$(dirname "$0")/../lib/e2e.sh"
need_root "(to become an ordinary user with and without a TUN device)"
need_cmd setpriv unshare
lanem=$OUT/tests/lab/lanem
need_built tests/lab/lanem
cp "$lanem" "$TMP/lanem"
chmod 755 "$TMP/lanem"
user() { setpriv --reuid 65533 --regid 65533 --clear-groups --no-new-privs "$@"; }
user unshare -Urn true 2>/dev/null || skip "this system does not let users make user namespaces"

# With a device of one's choice in its place, in a mount namespace that ends with the command.
with_tun() { # MODE COMMAND...
	local mode=$1
	shift
	unshare -m sh -c 'mount -t tmpfs -o dev none "$1" && mknod "$1/tun" c 10 200 && chmod "$2" "$1/tun" &&
		mount --bind "$1/tun" /dev/net/tun && shift 2 && exec "$@"' sh "$TMP/dev" "$mode" "$@"
}
mkdir "$TMP/dev"
[ -e /dev/net/tun ] || skip "no /dev/net/tun here"

same "status without the device" 1 "$(status_of with_tun 600 \
	setpriv --reuid 65533 --regid 65533 --clear-groups "$TMP/lanem" --measure)"
grep -q "/dev/net/tun: Permission denied (only root" "$TMP/status.out" || fail "message: $(cat "$TMP/status.out")"

with_tun 666 setpriv --reuid 65533 --regid 65533 --clear-groups \
	"$TMP/lanem" --name u --rtt 2 --measure --json --pings 5 --seconds 0 >"$TMP/said"
between "round trip (ms)" 2 "$(json rtt_ms.min <"$TMP/said")" 60

cat >"$TMP/inside" <<'END'
set -e
"$LANEM" exec B -- sh -c 'echo hello from B >"$1"' sh "$1"
"$LANEM" ctl rate 1gbit
"$LANEM" ctl stats
END
chmod 755 "$TMP/inside"
mkdir -m 777 "$TMP/open"
with_tun 666 setpriv --reuid 65533 --regid 65533 --clear-groups \
	"$TMP/lanem" --name u -- sh "$TMP/inside" "$TMP/open/hello" >"$TMP/said"
same "what B wrote" "hello from B" "$(cat "$TMP/open/hello")"
json ab.packets <"$TMP/said" >/dev/null
[ ! -e /tmp/lanem-65533 ] || fail "its folder is left: $(ls /tmp/lanem-65533)"
