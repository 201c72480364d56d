#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In a guest with the module: programs that came in through /dev/gleam, one of them with a single GPU, go on with the gleamd that comes after
# theirs, killed or restarted, and end with a word on what to do when none comes.
# time-limit: 600
# serial
. "$(dirname "$0")/../lib/e2e.sh"

# A whole system under software emulation, with everybody's deadlines real: minutes on a busy machine.
[ -n "${GLEAM_LONG:-}" ] || skip "takes minutes: make check-long runs it (GLEAM_LONG=1)"
. "$TOP/tests/kmod/kernel.sh"

need_cmd qemu-system-x86_64 busybox cpio dpkg-deb ldd
need_built bin/gleamd bin/gleam-worker bin/gleamctl lib/libcuda.so.1 lib/libsoftcuda.so tests/cuda/checksum
version=$(kmod_headers_version)
[ -n "$version" ] || skip "needs headers of a Debian kernel (tools/setup kmod)"
[ -z "${SAN:-}" ] && [ -x "$OUT/tests/kmod/kmod-test" ] || skip "needs tests/kmod/kmod-test, which is static: not with a sanitizer"
vmlinuz=$(kmod_vmlinuz "$version") || skip "$vmlinuz"
make -s -C "$TOP" O="$OUT" KDIR="/usr/src/linux-headers-$version" KMOD_OUT="$OUT/kmod-test" kmod >"$TMP/build.log" 2>&1 ||
	{ cat "$TMP/build.log"; fail "the module does not build"; }

root=$TMP/root
mkdir -p "$root/gleam/bin" "$root/gleam/lib" "$root/gleam/kernels" "$root/bin"
cp "$OUT/bin/gleamd" "$OUT/bin/gleam-worker" "$OUT/bin/gleamctl" "$root/gleam/bin/"
cp "$OUT/lib/libcuda.so.1" "$OUT/lib/libsoftcuda.so" "$root/gleam/lib/"
cp "$OUT/tests/cuda/checksum" "$root/gleam/"
cp "$OUT"/tests/cuda/kernels/*.ptx "$root/gleam/kernels/"
# Every library that one of these needs, at its path.
ldd "$root"/gleam/bin/* "$root"/gleam/lib/* "$root/gleam/checksum" 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' | grep -v "$TMP" | sort -u |
	while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -L "$library" "$root$library"
	done
strip --strip-debug "$root"/gleam/bin/* "$root"/gleam/lib/* 2>/dev/null || true

status=0
"$TOP/tests/kmod/boot" --kernel "$vmlinuz" --module "$OUT/kmod-test/gleam.ko" --test "$OUT/tests/kmod/kmod-test" \
	--init "$TOP/tests/kmod/init-restart" --add "$root" --memory 1536 --limit 570 >"$TMP/guest.log" 2>&1 || status=$?
cat "$TMP/guest.log"
same "status of the guest" 0 "$status"
grep -q '^programs went on with the gleamd after theirs' "$TMP/guest.log" || fail "the guest did not come to its end"
