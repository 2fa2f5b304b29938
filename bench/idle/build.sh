#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds the module that gives a guest idle states: bench/idle/build.sh OUTDIR writes
# OUTDIR/baton_idle.ko, for the root's kernel. Takes some seconds the first time, no time
# afterwards.
set -eu
[ $# = 1 ] || { echo "usage: bench/idle/build.sh OUTDIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
[ -e /etc/baton-root ] || exec "$here/../../vm/enter" "$here/build.sh" "$@"

headers=/usr/src/linux-headers-$(cat /kernel/default)
[ -d "$headers" ] || { echo "bench/idle: $headers is missing; make the root anew (vm/root.sh)" >&2; exit 2; }

mkdir -p "$1"
out=$(cd "$1" && pwd -P)
exec 9>"$out/lock"
flock 9
stamp=$(cat "$0" "$here"/Kbuild "$here"/*.c "$headers/Module.symvers" | sha256sum)
[ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

echo "baton: building baton_idle" >&2
work=$out/work
rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
cp "$here"/Kbuild "$here"/*.c "$work"
make -s -C "/lib/modules/${headers#/usr/src/linux-headers-}/build" M="$work" modules >"$work/make.log" 2>&1 || { cat "$work/make.log" >&2; exit 1; }
grep -E 'warning:|error:' "$work/make.log" | grep -v 'skipping BTF' >&2 || :
mv "$work/baton_idle.ko" "$out/baton_idle.ko"
echo "$stamp" >"$out/stamp"
