#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds a kernel that looks for mistakes in Baton's own kernel code, from Debian's source of the
# root's kernel and its configuration without loadable drivers. Runs inside the root:
#
#   vm/enter vm/sanitized.sh kasan   KASAN, UBSAN, lockdep, checks of sleeping, of objects and of
#                                    lists, kmemleak
#   vm/enter vm/sanitized.sh kcsan   KCSAN: races between CPUs
#
# Prints its release, which `baton vm run --kernel` takes. Once built, it stays: some 20 minutes on
# two CPUs, and 5 GB in $BATON_CACHE/sanitized.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/common.sh"
[ -e /etc/baton-root ] || die "this runs inside Baton's Debian root: vm/enter vm/sanitized.sh KIND"
[ $# = 1 ] || die "vm/sanitized.sh kasan | kcsan"
kind=$1
case $kind in
kasan)
	options="
		-e KASAN -e KASAN_GENERIC -e KASAN_INLINE -e KASAN_VMALLOC
		-e UBSAN -e UBSAN_BOUNDS -e UBSAN_SHIFT -e UBSAN_BOOL -e UBSAN_ENUM -d UBSAN_TRAP
		-e PROVE_LOCKING -e PROVE_RAW_LOCK_NESTING -e DEBUG_ATOMIC_SLEEP -e DEBUG_PREEMPT
		-e DEBUG_OBJECTS -e DEBUG_OBJECTS_FREE -e DEBUG_OBJECTS_TIMERS -e DEBUG_OBJECTS_WORK
		-e DEBUG_OBJECTS_RCU_HEAD -e DEBUG_LIST
		-e DEBUG_KMEMLEAK -e DEBUG_KMEMLEAK_DEFAULT_OFF
		--set-val DEBUG_KMEMLEAK_MEM_POOL_SIZE 64000 -e SCHED_STACK_END_CHECK"
	;;
kcsan)
	options="
		-e KCSAN -e KCSAN_EARLY_ENABLE -d KCSAN_STRICT
		--set-val KCSAN_REPORT_ONCE_IN_MS 0 -d KASAN -d PROVE_LOCKING"
	;;
*) die "there is no sanitized kernel '$kind': kasan or kcsan" ;;
esac

base=$(cat /kernel/default)
version=$(echo "$base" | sed 's/+.*//')
release=$version-baton-$kind
dir=$BATON_CACHE/sanitized/$kind
image=/kernel/usr/lib/modules/$release/vmlinuz
if [ -e "$image" ] && [ -e "/lib/modules/$release/build/Makefile" ]; then
	echo "$release"
	exit 0
fi
failed() {
	tail -n 30 "$dir/make.log" >&2
	die "kernel $release does not build: $dir/make.log (Baton's own fault)"
}

say "building kernel $release: some 20 minutes and 5 GB, once"
start=$(date +%s)
rm -rf "$dir"
mkdir -p "$dir"
tar -C "$dir" --strip-components=1 -xf "/usr/src/linux-source-${version%.*}.tar.xz"
cd "$dir"
cp "/usr/src/linux-headers-$base/.config" .config
# What a guest does not need, and would take half of the time.
unneeded="
	DRM SOUND USB_SUPPORT WLAN INFINIBAND NETFILTER XEN HYPERV NETDEVICES ATA SCSI MD EXT4_FS
	FUSE_FS NFS_FS FS_ENCRYPTION FS_VERITY SECURITY_SELINUX SECURITY_APPARMOR SECURITY_TOMOYO
	SECURITY_LANDLOCK SECURITY_YAMA SECURITY_LOADPIN SECURITY_IPE INTEGRITY IMA KVM I2C HWMON
	VIDEO FB LOGO BACKLIGHT_CLASS_DEVICE IOMMU_SUPPORT VFIO BLK_DEV_NVME DAX LIBNVDIMM STAGING
	HOTPLUG_PCI MPTCP XFRM IPV6 DAMON LIVEPATCH CXL_BUS EDAC RAS POWERCAP THERMAL GPIOLIB
	PINCTRL SPI TCG_TPM MFD_CORE REGULATOR NVMEM PPS PTP_1588_CLOCK NET_SCHED ACPI_NFIT
	ACPI_APEI HIBERNATION SUSPEND CRYPTO_USER MEMORY_HOTPLUG"
# Nothing that is a module. No keys, as modules are not signed; no Rust, as the kernel's own is of
# another version of the compiler.
touch no-modules
make -s LSMOD="$dir/no-modules" localmodconfig </dev/null >make.log 2>&1 || failed
scripts/config --set-str LOCALVERSION "-baton-$kind" -d LOCALVERSION_AUTO \
	--set-str BUILD_SALT "" -d MODULE_SIG -d SYSTEM_TRUSTED_KEYRING -d SYSTEM_REVOCATION_LIST \
	-d RUST -d SECURITY_LOCKDOWN_LSM -d WERROR -e DEBUG_KERNEL -e DEBUG_INFO_BTF \
	$(printf -- '-d %s ' $unneeded) $options
make -s olddefconfig >make.log 2>&1 || failed
nice make -s -j"$(nproc)" bzImage modules >make.log 2>&1 || failed
[ "$(make -s kernelrelease)" = "$release" ] ||
	die "the kernel is $(make -s kernelrelease), not $release (Baton's own fault)"
mkdir -p "/lib/modules/$release" "${image%/*}"
ln -sfn "$dir" "/lib/modules/$release/build"
cp arch/x86/boot/bzImage "$image.new"
mv "$image.new" "$image"
say "kernel $release is ready ($(($(date +%s) - start)) s)"
echo "$release"
