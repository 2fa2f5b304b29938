#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds the plugin of QEMU that counts the instructions of each CPU: bench/counter/build.sh OUTDIR
# builds OUTDIR/counter.so.
set -eu
[ $# = 1 ] || { echo "usage: bench/counter/build.sh OUTDIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
[ -e /etc/baton-root ] || exec "$here/../../vm/enter" "$here/build.sh" "$@"

mkdir -p "$1"
out=$(cd "$1" && pwd -P)
exec 9>"$out/lock"
flock 9
stamp=$(cat "$0" "$here"/*.c | sha256sum)
[ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

echo "baton: building the counter of instructions" >&2
gcc -std=gnu17 -O2 -Wall -Wextra -Werror -Wno-unused-parameter -fvisibility=hidden -shared -fPIC \
	"$here/counter.c" -o "$out/counter.so.new"
mv "$out/counter.so.new" "$out/counter.so"
echo "$stamp" >"$out/stamp"
