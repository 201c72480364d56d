#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The kernel module builds without a warning, and all its tests pass in a guest with Debian's kernel: sessions, deaths, the
# broker's restart, limits, virtual GPUs, netlink, a thousand opens in parallel, random system calls, unloading.
# time-limit: 240
# serial
. "$(dirname "$0")/../lib/e2e.sh"
. "$TOP/tests/kmod/kernel.sh"

need_cmd qemu-system-x86_64 busybox cpio dpkg-deb
version=$(kmod_headers_version)
[ -n "$version" ] || skip "needs headers of a Debian kernel (tools/setup kmod)"
[ -z "${SAN:-}" ] && [ -x "$OUT/tests/kmod/kmod-test" ] || skip "needs tests/kmod/kmod-test, which is static: not with a sanitizer"
vmlinuz=$(kmod_vmlinuz "$version") || skip "$vmlinuz"

make -s -C "$TOP" O="$OUT" KDIR="/usr/src/linux-headers-$version" KMOD_OUT="$OUT/kmod-test" kmod >"$TMP/build.log" 2>&1 ||
	{ cat "$TMP/build.log"; fail "the module does not build"; }
grep -iE 'warning|error' "$TMP/build.log" && fail "the build has warnings"

status=0
"$TOP/tests/kmod/boot" --kernel "$vmlinuz" --module "$OUT/kmod-test/gleam.ko" --test "$OUT/tests/kmod/kmod-test" \
	--limit 220 >"$TMP/guest.log" 2>&1 || status=$?
cat "$TMP/guest.log"
same "status of the guest" 0 "$status"
grep -qE '^[0-9]+ passed, 0 failed' "$TMP/guest.log" || fail "the tests did not come to their end"
