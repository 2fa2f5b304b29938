#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Makes the Debian testing root, which contains kernel, headers, compilers, QEMU and tools of one
# age:
#
#   vm/root.sh          once about 2 minutes and 3.5 GB in $BATON_CACHE/root (default
#                       /var/cache/baton/root); afterwards a few milliseconds. When the package
#                       list has changed, only missing packages are installed.
#
# To get newer packages, remove $BATON_CACHE/root and run it again; vm/tested says which versions
# were tested. BATON_SUITE names another suite of Debian (next.sh). Two concurrent runs are safe,
# and so is killing one: the root appears under its name only when it is complete, and its mounts
# are in a mount namespace of their own.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/common.sh"

suite=${BATON_SUITE:-forky}
mirror=${BATON_DEBIAN_MIRROR:-http://deb.debian.org/debian}

# The packages of the root. linux-source and the kernel image are added when the headers' version is
# known. The line of protoc is for tests of files that other programs read: protoc decodes
# traces, the browser opens pages (350 MB with all that it needs; the full chromium would be 570).
# gdb is for `baton replay --gdb`, strace kills commands between two system calls. Then come the
# programs with which benches load a machine, and the provers of `baton prove` and `lang/proofs`.
# LLVM 22 is that of rustc: it compiles policies (hosts/kernel/build.sh).
packages="
ca-certificates make gcc libc6-dev pkgconf git cpio xz-utils zstd procps util-linux python3
rustc cargo rust-src rust-clippy rustfmt
linux-headers-cloud-amd64 kmod pahole bpftool clang llvm libbpf-dev libelf-dev zlib1g-dev
qemu-system-x86 busybox-static systemd linux-perf rt-tests stress-ng
protobuf-compiler chromium-headless-shell fonts-dejavu-core
gdb strace
librocksdb-dev libsqlite3-dev memcached 7zip x265 redis-server redis-tools
z3 cvc4 why3
llvm-22 clang-22
"
# Counts up when this script changes in a way that an existing root must follow.
edition=3
stamp=$(echo "$edition $suite" $packages | sha256sum | cut -c1-16)

current() { [ "$(cat "$root/etc/baton-root" 2>/dev/null)" = "$stamp" ]; }

current && exit 0
become_root "$here/root.sh" "$@"
[ "$(uname -m)" = x86_64 ] || die "the harness runs on x86-64 only; this is $(uname -m)"
if [ "${BATON_ROOT_NAMESPACE:-}" != "$$" ]; then
	# exec keeps the process number, so a child cannot mistake the variable for its own.
	export BATON_ROOT_NAMESPACE=$$
	exec unshare --mount "$here/root.sh" "$@"
fi

mkdir -p "$BATON_CACHE"
exec 9>"$BATON_CACHE/root.lock"
if ! flock -n 9; then
	say "another process is making $root: waiting for it"
	flock 9
fi
current && exit 0

export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

# Installs on this machine the three packages that are needed to make the root.
outside() {
	wanted=
	for p in mmdebstrap debian-archive-keyring ca-certificates; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || wanted="$wanted $p"
	done
	[ -n "$wanted" ] || return 0
	command -v apt-get >/dev/null || die "install these first, this machine has no apt-get:$wanted"
	say "installing on this machine:$wanted"
	apt-get update -q >&2
	apt-get install -q -y --no-install-recommends $wanted >&2
}

# in_root DIR CMD...: runs CMD in the root at DIR.
in_root() (
	dir=$1
	shift
	mountpoint -q "$dir/proc" || mount -t proc proc "$dir/proc"
	cp -L /etc/resolv.conf "$dir/etc/resolv.conf"
	exec chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"} \
		${https_proxy:+"https_proxy=$https_proxy"} "$@"
)

# apt DIR ARGS...: apt-get in the root at DIR. It runs without a pseudo-terminal, as the root has no
# /dev/pts.
apt() {
	dir=$1
	shift
	in_root "$dir" apt-get -q -y -o Dpkg::Use-Pty=0 "$@" >&2
}

# kernel DIR: adds to the root at DIR the kernel image, under /kernel, and the kernel's source, both
# of the headers' version. The image is unpacked, not installed: nothing boots from the root, and
# its package would require an initramfs generator.
kernel() {
	release=$(in_root "$1" dpkg-query -f '${Depends}' -W linux-headers-cloud-amd64 | sed 's/.*linux-headers-\([0-9][^ ]*\).*/\1/')
	series=$(echo "$release" | sed 's/^\([0-9]*\.[0-9]*\).*/\1/')
	say "adding the image and the source of kernel $release"
	apt "$1" install --no-upgrade "linux-source-$series"
	# The kernel that is booted unless another is named; there may be more (kernels.sh).
	mkdir -p "$1/kernel"
	[ -e "$1/kernel/default" ] || echo "$release" >"$1/kernel/default"
	[ ! -d "$1/kernel/usr/lib/modules/$release" ] || return 0
	in_root "$1" sh -euc 'mkdir -p /kernel && cd /kernel &&
		apt-get -o APT::Sandbox::User=root download -q "linux-binary-unsigned-$1" &&
		dpkg -x linux-binary-unsigned-*.deb . && rm -f linux-binary-unsigned-*.deb' sh "$release" >&2
}

# Git refuses to read a repository of another user, and the repository usually belongs to one:
# commands in the root run as root.
finish() {
	printf '[safe]\n\tdirectory = *\n' >"$1/etc/gitconfig"
	echo "$stamp" >"$1/etc/baton-root.new"
	mv "$1/etc/baton-root.new" "$1/etc/baton-root"
}

if [ -x "$root/usr/bin/apt-get" ]; then
	say "the package list has changed: installing what is missing in $root"
	apt "$root" update
	apt "$root" install --no-upgrade $packages ||
		die "the root could not be brought up to date; remove it (rm -rf --one-file-system $root) and try again"
	kernel "$root"
	finish "$root"
	exit 0
fi

free=$(df -Pk "$BATON_CACHE" | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
[ "$free" -ge 5 ] ||
	die "making the root needs 5 GB in $BATON_CACHE, only $free GB are free; set BATON_CACHE to another place"
outside
for keyring in /usr/share/keyrings/debian-archive-keyring.pgp /usr/share/keyrings/debian-archive-keyring.gpg; do
	[ ! -e "$keyring" ] || break
done

say "making a Debian $suite root in $root: about 2 minutes, 3.5 GB, once"
start=$(date +%s)
rm -rf --one-file-system "$root.tmp"
# Check-Valid-Until is off because a mirror may serve an older snapshot. The signature is still
# checked.
mmdebstrap --mode=root --variant=apt --keyring="$keyring" \
	--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
	--include="$(echo $packages | tr ' ' ,)" "$suite" "$root.tmp" "deb $mirror $suite main" >&2 ||
	die "the root could not be made, for the reason above; the next try starts from the beginning"
apt "$root.tmp" update
kernel "$root.tmp"
apt "$root.tmp" clean
finish "$root.tmp"
umount "$root.tmp/proc"
mv "$root.tmp" "$root"
say "the root is ready ($(($(date +%s) - start)) s)"
