#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Tries tomorrow's kernel and compilers: makes a root of Debian unstable in a cache of its own,
# $BATON_CACHE-next, and runs the check and the demo in it. Remove that directory for newer
# packages.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/common.sh"
BATON_CACHE=$BATON_CACHE-next BATON_SUITE=sid
export BATON_CACHE BATON_SUITE

say "a root of Debian $BATON_SUITE in $BATON_CACHE, which takes 3.5 GB and as much again for builds"
"$here/root.sh"
"$here/enter" "$here/versions.sh" | grep -v '^#' | while read -r name version; do
	say "$name $version, tested: $(sed -n "s/^$name //p" "$here/tested")"
done
"$here/enter" cargo xtask check
"$here/../baton" demo
