# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Finding and fetching a kernel for tests of the module. Sourced; $OUT is where things are kept.

# The kernel whose headers Debian's package has installed: the version of the newest, or nothing.
kmod_headers_version() {
	local folder
	folder=$(ls -1d /usr/src/linux-headers-*-cloud-amd64/Module.symvers /usr/src/linux-headers-*-amd64/Module.symvers \
		2>/dev/null | sort -V | uniq | grep cloud || true)
	[ -n "$folder" ] || folder=$(ls -1d /usr/src/linux-headers-*-amd64/Module.symvers 2>/dev/null | sort -V || true)
	folder=$(printf '%s\n' "$folder" | tail -n 1)
	[ -n "$folder" ] || return 0
	folder=${folder%/Module.symvers}
	echo "${folder#/usr/src/linux-headers-}"
}

# kmod_vmlinuz VERSION: a bootable kernel of that version, fetched once (27 MB, not installed). Fails with a line that
# says why.
kmod_vmlinuz() {
	local version=$1 cache=$OUT/kernel/$1 package
	for file in "$cache/boot/vmlinuz-$version" "/boot/vmlinuz-$version"; do
		if [ -r "$file" ]; then
			echo "$file"
			return
		fi
	done
	command -v apt-get >/dev/null || { echo "there is no kernel $version here and no apt-get to fetch it"; return 1; }
	mkdir -p "$cache"
	for package in "linux-image-$version-unsigned" "linux-image-$version"; do
		if (cd "$cache" && apt-get download -qq "$package" >apt.log 2>&1); then
			dpkg-deb -x "$cache/$package"_*.deb "$cache"
			rm -f "$cache/$package"_*.deb
			rm -rf "$cache/lib" "$cache/usr"
			echo "$cache/boot/vmlinuz-$version"
			return
		fi
	done
	echo "the kernel $version can't be fetched: $(tail -n 1 "$cache/apt.log")"
	return 1
}
