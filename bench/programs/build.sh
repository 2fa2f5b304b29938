#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds the programs that benches run: bench/programs/build.sh OUTDIR builds OUTDIR/NAME from each
# NAME.c here, whose second line may name libraries. Takes some seconds the first time, no time
# afterwards.
set -eu
[ $# = 1 ] || { echo "usage: bench/programs/build.sh OUTDIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
[ -e /etc/baton-root ] || exec "$here/../../vm/enter" "$here/build.sh" "$@"

mkdir -p "$1"
out=$(cd "$1" && pwd -P)
exec 9>"$out/lock"
flock 9
policy=$here/../../policy/c
stamp=$(cat "$0" "$here"/*.[ch] "$policy"/*.h | sha256sum)
[ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

for source in "$here"/*.c; do
	name=$(basename "$source" .c)
	echo "baton: building $name" >&2
	# shellcheck disable=SC2046 # words
	gcc -std=gnu17 -g -O2 -Wall -Wextra -Werror -pthread -I"$policy" "$source" -o "$out/$name.new" \
		$(sed -n 's,^// libraries: ,,p' "$source") -lm
	mv "$out/$name.new" "$out/$name"
done
echo "$stamp" >"$out/stamp"
