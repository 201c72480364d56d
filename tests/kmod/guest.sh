# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A guest with the module, both daemons, the library and CUDA programs in it, for tests/e2e/kernel-module-*.sh; after tests/lib/e2e.sh and
# tests/kmod/kernel.sh.
#
#	guest_prepare PROGRAM [TOOL]...	builds the module and fills $TMP/root: what was built in /gleam, a program of tests/cuda with all kernels, and
#					those TOOLs that there are in /bin; what each needs. Skips the test where something is missing
#	guest_run INIT SECONDS		runs tests/kmod/INIT there; its words are in $TMP/guest.log, and must end well

guest_prepare() {
	local program=$1 root=$TMP/root tool tools=() version library
	shift
	need_cmd qemu-system-x86_64 busybox cpio dpkg-deb ldd
	need_built bin/gleamd bin/gleam-worker bin/gleamctl lib/libcuda.so.1 lib/libsoftcuda.so "tests/cuda/$program"
	version=$(kmod_headers_version)
	[ -n "$version" ] || skip "needs headers of a Debian kernel (tools/setup kmod)"
	[ -z "${SAN:-}" ] && [ -x "$OUT/tests/kmod/kmod-test" ] || skip "needs tests/kmod/kmod-test, which is static: not with a sanitizer"
	GUEST_VMLINUZ=$(kmod_vmlinuz "$version") || skip "$GUEST_VMLINUZ"
	make -s -C "$TOP" O="$OUT" KDIR="/usr/src/linux-headers-$version" KMOD_OUT="$OUT/kmod-test" kmod >"$TMP/build.log" 2>&1 ||
		{ cat "$TMP/build.log"; fail "the module does not build"; }
	mkdir -p "$root/gleam/bin" "$root/gleam/lib" "$root/gleam/kernels" "$root/bin"
	cp "$OUT/bin/gleamd" "$OUT/bin/gleam-worker" "$OUT/bin/gleamctl" "$root/gleam/bin/"
	cp "$OUT/lib/libcuda.so.1" "$OUT/lib/libsoftcuda.so" "$root/gleam/lib/"
	cp "$OUT/tests/cuda/$program" "$root/gleam/"
	cp "$OUT"/tests/cuda/kernels/*.ptx "$root/gleam/kernels/"
	for tool; do
		command -v "$tool" >/dev/null || continue
		cp "$(command -v "$tool")" "$root/bin/"
		tools+=("$root/bin/$tool")
	done
	# Every library that one of these needs, at its path.
	ldd "$root"/gleam/bin/* "$root"/gleam/lib/* "$root/gleam/$program" "${tools[@]}" 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' |
		grep -v "$TMP" | sort -u | while read -r library; do
			mkdir -p "$root$(dirname "$library")"
			cp -L "$library" "$root$library"
		done
	strip --strip-debug "$root"/gleam/bin/* "$root"/gleam/lib/* 2>/dev/null || true
}

guest_run() {
	local status=0
	"$TOP/tests/kmod/boot" --kernel "$GUEST_VMLINUZ" --module "$OUT/kmod-test/gleam.ko" --test "$OUT/tests/kmod/kmod-test" \
		--init "$TOP/tests/kmod/$1" --add "$TMP/root" --memory 1536 --limit "$2" >"$TMP/guest.log" 2>&1 || status=$?
	cat "$TMP/guest.log"
	same "status of the guest" 0 "$status"
}
