#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages in a root of their own (an overlay over this machine's): installed, two daemons run from them and carry a
# program that knows nothing of Gleam; purged, they leave what Debian's own tools keep and nothing else. GLEAM_LONG=1: dkms builds
# the module, too.
# time-limit: 240
. "$(dirname "$0")/../lib/e2e.sh"

need_root "(a root of its own)"
need_cmd dpkg dpkg-deb dpkg-shlibdeps strip xz unshare ldconfig
need_built bin/gleamd bin/gleam-worker bin/gleamctl lib/libcuda.so.1 lib/libsoftcuda.so
grep -qw overlay /proc/filesystems || skip "needs overlayfs"
! ldd "$OUT/bin/gleamd" | grep -qE 'lib(a|t|ub)san' || skip "packages are not made with a sanitizer"
make -s -C "$TOP" O="$OUT" build-deb >"$TMP/made"
for package in client node dkms doc; do
	ls "$OUT"/deb/gleam-${package}_*.deb >/dev/null || fail "no gleam-$package: $(cat "$TMP/made")"
done
if command -v lintian >/dev/null; then
	lintian --allow-root --fail-on error,warning "$OUT"/deb/*.deb >"$TMP/lintian" 2>&1 || fail "lintian: $(cat "$TMP/lintian")"
fi
# The service keeps out of a mount namespace of its own, and systemd has nothing to complain about.
if command -v systemd-analyze >/dev/null; then
	dpkg-deb --fsys-tarfile "$OUT"/deb/gleam-client_*.deb | tar -xO ./lib/systemd/system/gleamd.service >"$TMP/gleamd.service"
	! grep -E '^(ProtectSystem|ProtectHome|PrivateTmp|PrivateDevices|ProtectProc|ProtectKernel|ProtectControlGroups|PrivateMounts)' \
		"$TMP/gleamd.service" || fail "the tree would be hidden"
	sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$TMP/gleamd.service" >"$TMP/gleam-check.service"
	systemd-analyze verify --man=no "$TMP/gleam-check.service" >"$TMP/verify" 2>&1 || true
	! grep 'gleam-check.service' "$TMP/verify" || fail "systemd-analyze: $(cat "$TMP/verify")"
fi

cat >"$TMP/inside" <<'END'
set -Eeuo pipefail
# In a process namespace of its own: what is looked for by name is ours.
mount --make-rprivate /
mount -t tmpfs none "$TMP/overlay"
mkdir "$TMP/overlay/upper" "$TMP/overlay/work" "$TMP/overlay/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$TMP/overlay/upper,workdir=$TMP/overlay/work" "$TMP/overlay/root" || exit 77
root=$TMP/overlay/root upper=$TMP/overlay/upper
for folder in /proc /dev "$OUT"; do
	mkdir -p "$root$folder"
	mount --rbind "$folder" "$root$folder"
done
mount -t tmpfs none "$root/run"
mkdir -p "$root/opt/gleam-test"
cd /
# Whatever this machine has installed of it would be found instead.
find "$upper" -mindepth 1 -printf '%P\n' | sort >"$TMP/before"
in_root() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

in_root dpkg -i "$OUT"/deb/gleam-client_*.deb "$OUT"/deb/gleam-node_*.deb "$OUT"/deb/gleam-doc_*.deb >"$TMP/install" 2>&1 ||
	{ cat "$TMP/install"; exit 1; }
in_root gleamctl version | grep -q '^gleamctl '
in_root man -w gleamd >/dev/null 2>&1 || [ -e "$root/usr/share/man/man8/gleamd.8.gz" ]
in_root getent passwd gleam-worker >/dev/null || { echo "no user gleam-worker"; exit 1; }
in_root python3 -c 'import json; spec = json.load(open("/etc/cdi/gleam.json")); import os
assert spec["kind"] == "gleam.dev/gpu" and "all" in [d["name"] for d in spec["devices"]], spec
for device in spec["devices"]:
    assert device["containerEdits"], device
for mount in spec["containerEdits"]["mounts"]:
    assert mount["containerPath"].startswith("/") and (os.path.exists(mount["hostPath"]) or mount["hostPath"] == "/run/gleam"), mount'

# Two daemons as two machines would have them, paired, and a program with an empty environment.
printf '[node]\nlisten = 127.0.0.1:%s\ndriver = softgpu\n[tree]\nmount = no\n' "$PORT" >"$root/etc/gleam/gleam.conf"
in_root sh -c 'umask 077; gleamctl key new >/dev/null'
mkdir -p "$root/run/gleam"
in_root gleamd --config /etc/gleam/gleam.conf --key /etc/gleam/key --socket /run/gleam/node.sock >"$TMP/node.log" 2>&1 &
node=$!
in_root gleamd --config /dev/null --key /etc/gleam/key --server "gpu=127.0.0.1:$PORT" --no-fuse >"$TMP/client.log" 2>&1 &
client=$!
trap 'kill $node $client 2>/dev/null || true; wait || true' EXIT
for _ in $(seq 200); do [ -S "$root/run/gleam/gleamd.sock" ] && grep -q 'is warm' "$TMP/node.log" && break; sleep 0.1; done
in_root "$OUT/tests/cuda/vecadd" 1000 >"$TMP/program" 2>&1 || { echo "the program: $(cat "$TMP/program" "$TMP/node.log" "$TMP/client.log")"; exit 1; }
grep -q '^1 passed, 0 failed' "$TMP/program"
in_root gleamctl doctor >"$TMP/doctor" || { cat "$TMP/doctor"; exit 1; }
grep -qE "^library +ok +programs find Gleam's libcuda.so.1 first: /usr/lib/gleam/libcuda.so.1" "$TMP/doctor" || { cat "$TMP/doctor"; exit 1; }
# Workers run as the user that the package made.
for _ in $(seq 100); do worker=$(pgrep -x gleam-worker | head -n 1) && break; sleep 0.1; done
[ -n "$worker" ] || { echo "no worker is warm again: $(cat "$TMP/node.log")"; exit 1; }
[ "$(stat -c %u "/proc/$worker")" = "$(in_root id -u gleam-worker)" ] || { echo "the worker runs as $(stat -c %u "/proc/$worker")"; exit 1; }
pkill -x gleamd
wait $node $client || true
trap - EXIT

in_root dpkg -i "$OUT"/deb/gleam-client_*.deb >"$TMP/again" 2>&1 || { cat "$TMP/again"; exit 1; }
grep -q '^listen = 127.0.0.1' "$root/etc/gleam/gleam.conf" || { echo "settings are gone after an upgrade"; exit 1; }
in_root dpkg -r gleam-node gleam-client >"$TMP/remove" 2>&1 || { cat "$TMP/remove"; exit 1; }
[ -e "$root/etc/gleam/key" ] || { echo "remove takes the key away"; exit 1; }
! in_root "$OUT/tests/cuda/vecadd" 1000 >/dev/null 2>&1 || { echo "a program still finds Gleam"; exit 1; }
if in_root sh -c 'command -v dkms' >/dev/null && [ -n "$KERNEL" ] && [ -n "${GLEAM_LONG:-}" ]; then
	in_root dpkg -i "$OUT"/deb/gleam-dkms_*.deb >"$TMP/dkms" 2>&1 || { cat "$TMP/dkms"; exit 1; }
	version=$(in_root dpkg-query -W -f '${Version}' gleam-dkms)
	in_root dkms build -m gleam -v "$version" -k "$KERNEL" >>"$TMP/dkms" 2>&1 || { cat "$TMP/dkms" "$root"/var/lib/dkms/gleam/*/build/make.log; exit 1; }
	in_root dkms status | grep -qE "gleam/$version, $KERNEL, .*: (built|installed)" || { in_root dkms status; exit 1; }
	echo "gleam.ko was built by dkms for $KERNEL"
	in_root dpkg --purge gleam-dkms >>"$TMP/dkms" 2>&1 || { cat "$TMP/dkms"; exit 1; }
	[ ! -e "$root/var/lib/dkms/gleam" ] || { echo "dkms still has it: $(cat "$TMP/dkms")"; exit 1; }
fi
in_root dpkg --purge gleam-node gleam-client gleam-doc >"$TMP/purge" 2>&1 || { cat "$TMP/purge"; exit 1; }
find "$upper" -mindepth 1 ! -type d -printf '%P\n' | sort | comm -13 "$TMP/before" - |
	grep -vE '^(var/lib/dpkg/|var/lib/dkms/|var/lib/systemd/deb-systemd|var/log/|var/cache/(ldconfig|man)/|var/(lib|cache)/gleam$|etc/(ld.so.cache|passwd-?|group-?|shadow-?|gshadow-?|\.pwd\.lock|sub[ug]id-?)|run/|tmp/|root/)' >"$TMP/left" || true
# A file that is gone from the lower root would be seen as a device node here: nothing of others' may be taken away.
[ ! -s "$TMP/left" ] || { echo "left behind or taken away: $(cat "$TMP/left")"; exit 1; }
find "$upper" -mindepth 1 -printf '/%P\n' | grep -F gleam | grep -vE "^(/var/|/opt/gleam-test$|$OUT|$TMP)" >"$TMP/left" || true
[ ! -s "$TMP/left" ] || { echo "left behind: $(cat "$TMP/left")"; exit 1; }
for folder in /var/lib/gleam /var/cache/gleam; do
	[ ! -e "$root$folder" ] || { echo "$folder is left behind"; exit 1; }
done
END
PORT=$(free_port)
KERNEL=$(ls -d /usr/src/linux-headers-*-cloud-amd64 /usr/src/linux-headers-*-amd64 2>/dev/null | sed 's|.*linux-headers-||' | sort -V | tail -n 1)
[ -e "/lib/modules/$KERNEL/build" ] || KERNEL=
export TMP TOP OUT PORT KERNEL
mkdir "$TMP/overlay"
status=0
unshare -m -p -f --mount-proc bash "$TMP/inside" || status=$?
[ "$status" != 77 ] || skip "overlayfs can't be mounted here"
[ "$status" = 0 ] || fail "see above"
say "installed, used, purged"
