#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds BPF schedulers, to be measured beside Baton's policies: bench/scx/build.sh OUTDIR builds
# the kernel's own examples OUTDIR/scx_simple (queues in the kernel, by vruntime, or in order of
# arrival with -f), OUTDIR/scx_central (one CPU decides for all) and OUTDIR/scx_userland (a process
# in user space decides), and OUTDIR/scx_fifo, whose source lies here (the decisions of the policy
# fifo). The source of the examples is Debian's linux-source package, unmodified; compiler, bpftool
# and libbpf are the root's. Takes about 8 seconds the first time, no time afterwards.
set -eu
[ $# = 1 ] || { echo "usage: bench/scx/build.sh OUTDIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
[ -e /etc/baton-root ] || exec "$here/../../vm/enter" "$here/build.sh" "$@"

schedulers="scx_simple scx_central scx_userland scx_fifo"
tarball=$(echo /usr/src/linux-source-*.tar.xz)
vmlinux=/usr/src/linux-headers-$(cat /kernel/default)/vmlinux
for file in "$tarball" "$vmlinux"; do
	[ -f "$file" ] || { echo "bench/scx: $file is missing or not one file; make the root anew (vm/root.sh)" >&2; exit 2; }
done

mkdir -p "$1"
out=$(cd "$1" && pwd -P)
exec 9>"$out/lock"
flock 9
stamp=$(stat -c '%n %s %Y' "$0" "$here"/scx_fifo* "$tarball" "$vmlinux" /usr/bin/clang /usr/include/bpf/libbpf.h | sha256sum)
[ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

echo "baton: building $schedulers from $(basename "$tarball")" >&2
work=$out/work
rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
top=$(basename "$tarball" .tar.xz)
tar -xJf "$tarball" -C "$work" --strip-components=1 "$top/tools/sched_ext" "$top/tools/include"
cd "$work/tools/sched_ext"
cp "$here"/scx_fifo* .
bpftool btf dump file "$vmlinux" format c >vmlinux.h

for s in $schedulers; do
	clang -g -O2 -mcpu=v3 --target=bpf -mlittle-endian -D__TARGET_ARCH_x86 -fms-extensions -Wno-microsoft-anon-tag \
		-Wno-compare-distinct-pointer-types -Wno-missing-declarations \
		-Iinclude -Iinclude/bpf-compat -I. -I../include/uapi -I../include -c "$s.bpf.c" -o "$s.raw.o"
	bpftool gen object "$s.bpf.o" "$s.raw.o"
	bpftool gen skeleton "$s.bpf.o" name "$s" >"$s.bpf.skel.h"
	# tools/include is not searched here: user space has the C library's headers.
	gcc -g -O2 -pthread -Iinclude -I. "$s.c" -o "$s" -lbpf -lelf -lz
	mv "$s" "$out/$s"
done
echo "$stamp" >"$out/stamp"
