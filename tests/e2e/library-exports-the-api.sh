#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libcuda.so.1 has the driver's name and all its 675 functions, nothing else but gleam_*, and brings no library whose
# absence or other version could disturb a program.
. "$(dirname "$0")/../lib/e2e.sh"

need_cmd nm readelf
library=$OUT/lib/libcuda.so.1
nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | sort >"$TMP/names"
same "functions of the API" 675 "$(grep -c '^cu' "$TMP/names")"
same "other names" "" "$(grep -v -e '^cu' -e '^gleam_' "$TMP/names" || true)"
grep -qx gleam_version "$TMP/names" || fail "gleam_version is missing: a worker could not tell this library from a driver"
same "soname" libcuda.so.1 "$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
readelf -d "$library" | grep -q NODELETE || fail "the library may be unloaded under its own threads"
needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
say "needs: $needed"
for name in $needed; do
	case $name in
	libc.so.6 | libcrypto.so.3 | liblz4.so.1 | libzstd.so.1 | ld-linux* | lib*san.so*) ;;
	*) fail "it needs $name" ;;
	esac
done
