#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Fetches kernels from Debian's archive into the Debian root, beside the kernel that it has: headers
# to build for, and an image to boot. Runs inside the root:
#
#   vm/enter vm/kernels.sh             those of testing, unstable, experimental and backports,
#                                      in all flavours of x86-64
#   vm/enter vm/kernels.sh RELEASE...  these
#
# Prints the releases, oldest first. Kernels that are present are not fetched again; each is 30 MB.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/common.sh"
[ -e /etc/baton-root ] || die "this runs inside Baton's Debian root: vm/enter vm/kernels.sh"
mirror=${BATON_DEBIAN_MIRROR:-http://deb.debian.org/debian}
state=$BATON_CACHE/kernels

mkdir -p "$state/lists/partial" "$state/archives/partial"
for suite in forky sid experimental trixie-backports; do
	echo "deb $mirror $suite main"
done >"$state/sources.list"
# Lists of our own: the root has the lists of one suite only.
apt() {
	command=$1
	shift
	"$command" -q -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$state/lists" \
		-o Dir::Cache="$state" -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}
apt apt-get update >&2

# For each suite and flavour, the kernel that its kernel package depends on.
wanted() {
	if [ $# -gt 0 ]; then
		printf '%s\n' "$@"
	else
		apt apt-cache show linux-headers-amd64 linux-headers-cloud-amd64 linux-headers-rt-amd64 |
			sed -n 's/^Depends:.* linux-headers-\([0-9][^ ]*\).*/\1/p' | sort -Vu
	fi
}

has_image() { ls "/kernel/usr/lib/modules/$1"/vmlinuz* >/dev/null 2>&1; }

# fetch RELEASE: before 7.1 the image's package had another name.
fetch() {
	release=$1
	version=$(echo "$release" | sed 's/-\(cloud-\|rt-\)\{0,1\}amd64$//')
	for image in "linux-binary-unsigned-$release" "linux-binary-$release" "linux-image-$release"; do
		[ -z "$(apt apt-cache show --no-all-versions "$image" 2>/dev/null)" ] || break
	done
	mkdir -p "$state/debs.$$" /kernel
	(cd "$state/debs.$$" && apt apt-get download "linux-headers-$release" "linux-headers-$version-common" "linux-kbuild-$version" "$image" >&2)
	for package in "$state/debs.$$"/linux-headers-*.deb "$state/debs.$$"/linux-kbuild-*.deb; do
		dpkg --fsys-tarfile "$package" | tar -C / -x --keep-directory-symlink
	done
	for package in "$state/debs.$$"/linux-binary-*.deb "$state/debs.$$"/linux-image-*.deb; do
		[ ! -e "$package" ] || dpkg -x "$package" /kernel
	done
	rm -rf "$state/debs.$$"
	# Some packages have the image in /boot.
	if [ -e "/kernel/boot/vmlinuz-$release" ]; then
		mkdir -p "/kernel/usr/lib/modules/$release"
		mv "/kernel/boot/vmlinuz-$release" "/kernel/usr/lib/modules/$release/vmlinuz"
	fi
	has_image "$release" || die "the package $image has no image of kernel $release"
	# No module is loaded in a guest.
	rm -rf "/kernel/usr/lib/modules/$release/kernel"
}

for release in $(wanted "$@"); do
	if [ ! -e "/lib/modules/$release/build/Makefile" ] || ! has_image "$release"; then
		say "fetching kernel $release"
		fetch "$release"
	fi
	echo "$release"
done
