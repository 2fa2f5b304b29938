#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the kernel side of Baton for kernel $BATON_KERNEL, whose headers must be installed:
#   build.sh core OUTDIR          builds baton.ko and the BPF objects: shim, latency, cores
#   build.sh agent OUTDIR         builds baton_agent.ko: enclaves (hosts/agent/kernel)
#   build.sh policy DIR OUTDIR    builds baton_NAME.ko of the policy in DIR (a Rust crate, or a
#                                 folder with one C file)
# CC=... selects another compiler than the headers name. Without it, gcc is used if that one is not
# installed. With BATON_ALLOW_UNSAFE=1 a policy in Rust may have unsafe code of its own. With
# BATON_WITHOUT=recording everything is built without recording, and with BATON_WITHOUT=polls loops
# of policies have no polls, to measure what these cost (`baton bench record`, `baton bench polls`).
# Build files are kept under $BATON_CACHE/build for incremental builds.
# Prints only errors.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${BATON_CACHE:-/var/cache/baton}

die() {
	echo "baton build: $*" >&2
	exit 1
}

# Exits with status 3: something that the build needs is missing on this machine or in the kernel.
lacks() {
	echo "baton build: $*" >&2
	exit 3
}

release=${BATON_KERNEL:?the release of the kernel to build for}
build=/lib/modules/$release/build
[ -e "$build/Makefile" ] || lacks "the headers of kernel $release are not installed: no $build"
# Each line has all names of one function, as in `baton doctor`.
while read -r names; do
	grep -qE "	($names)	vmlinux" "$build/Module.symvers" ||
		lacks "kernel $release has no ${names##*|}, which Baton needs: Linux 6.18 has all"
done <<-NAMES
	sched_setattr_nocheck
	register_btf_kfunc_id_set
	resilient_queued_spin_lock_slowpath
	_kmalloc_nolock_noprof|kmalloc_nolock_noprof|kmalloc_nolock
	kfree_nolock
NAMES
grep -q '^CONFIG_SCHED_CLASS_EXT=y' "$build/.config" ||
	lacks "kernel $release was built without sched_ext (CONFIG_SCHED_CLASS_EXT)"
# The kernel's types (BTF), for the types of the modules and for the shim.
if [ -e "$build/vmlinux" ]; then
	types=$build/vmlinux
elif [ "$release" = "$(uname -r)" ] && [ -e /sys/kernel/btf/vmlinux ]; then
	types=/sys/kernel/btf/vmlinux
else
	lacks "the types (BTF) of kernel $release are not here: neither $build/vmlinux nor," \
		"as another kernel runs, /sys/kernel/btf/vmlinux"
fi
without= unpolled=
case ${BATON_WITHOUT:-} in
'') ;;
recording) without=-without-recording ;;
polls) unpolled=-without-polls ;;
*) die "BATON_WITHOUT=$BATON_WITHOUT: recording or polls (user)" ;;
esac
work=$cache/build/$release$without

# Flags to build core and alloc for the kernel's code model: no SSE, no red zone, no relocations
# that the module loader refuses (GOT), thunks for indirect jumps and returns, landing pads for IBT.
export RUSTC_BOOTSTRAP=1
# Part of the layout of states (policy/api/src/state.rs).
BATON_RUSTC=$(rustc --version)
export BATON_RUSTC
kernel_flags="-Crelocation-model=static -Ccode-model=kernel -Cno-redzone=y -Cjump-tables=n \
-Zcf-protection=branch -Zfunction-return=thunk-extern -Zretpoline-external-thunk -Zplt=yes \
-Zdirect-access-external-data=yes -Zemit-stack-sizes -Cdebuginfo=line-tables-only"
[ -z "$without" ] || kernel_flags+=" --cfg=baton_without_recording"

# Bytes of stack that one function may need with those that it calls. A function that checks the
# stack checks what its callers have used, and then has its own frame beside that: see guard.S.
max_frame=5120

# Refuses an object with a function that needs more.
small_frames() {
	local sizes size name
	sizes=$("$llvm/llvm-readelf" --stack-sizes -C "$1") ||
		die "$1 has no sizes of frames (Baton's own fault)"
	# The first line that awk finds: "16696 NAME". Without one, read fails.
	read -r size name < <(awk -v max=$max_frame '$1 + 0 > max && !found++' <<<"$sizes") || return 0
	die "the function $name needs $size bytes of stack at once, of $max_frame:" \
		"keep large values in storage, or in a Box (policy)"
}

# short_chains CALLS OBJECT: refuses a policy whose functions need more with those that they call.
short_chains() {
	local why
	why=$("$llvm/llvm-readelf" --stack-sizes "$2" |
		awk -v max=$max_frame -f "$here/chains.awk" "$1" - | "$llvm/llvm-cxxfilt")
	[ -z "$why" ] || die "$why"
}

# rust_library CRATE_DIR NAME [EMIT]: builds the crate's static library, and sets `library` to its
# path. EMIT names further output of rustc.
rust_library() {
	local target=x86_64-unknown-none flags="$kernel_flags --remap-path-prefix=$top/="
	(cd "$1" && CARGO_TARGET_DIR="$cache/build/rust$without" RUSTFLAGS="$flags" \
		cargo rustc --quiet --release -Zbuild-std=core,alloc --target $target ${3:+-- --emit="$3"})
	library=$cache/build/rust$without/$target/release/lib$2.a
}

# renew FILE: replaces the file by FILE.new, unless it is the same. What depends on it is then not
# made anew.
renew() {
	if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

# shipped OBJECT OUT FLAG...: gives kbuild an object, changed by objcopy with these flags, and
# removes the original.
shipped() {
	local raw=$1 out=$2
	shift 2
	small_frames "$raw"
	objcopy -R .eh_frame -R .stack_sizes -R .llvmbc -R .llvmcmd -R .comment "$@" \
		"$raw" "$out.new"
	rm "$raw"
	renew "$out"
}

# The version of LLVM that is in rustc: its tools compile policies.
llvm=/usr/lib/llvm-$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')/bin

# Where a CPU's turns are: see guard.h.
turns=$(sed -n 's/^#define BATON_FRAME_TURNS \([0-9]*\).*/\1/p' "$here/guard.h")
[ -n "$turns" ] || die "hosts/kernel/guard.h does not say where the turns are (Baton's own fault)"

# Each function of a policy, and each loop, then uses up the call's turns (turns.c). Calls of memcpy
# and its like do if the block is large (guard.S).
counted=(--redefine-sym mcount=baton_stack_check --redefine-sym bcmp=baton_bcmp)
for name in memcpy memmove memset memcmp; do counted+=(--redefine-sym "$name=baton_$name"); done

# bounded BITCODE OBJECT: compiles a policy. Loops that are entered in several places are first made
# ones that have one entry, as others get no poll. Code that several places share would have the
# source line of one of them.
bounded() {
	local passes=globaldce
	[ -n "$unpolled" ] ||
		passes="function(lower-switch,fix-irreducible),place-safepoints,$passes"
	"$llvm/llvm-dis" "$1" -o - |
		awk -v turns="$turns" -v calls="$2.calls" -f "$here/bounds.awk" |
		"$llvm/opt" -S -passes="$passes" -spp-no-entry -spp-no-call -spp-all-backedges |
		sed '/^define /s/ gc "statepoint-example"//' |
		"$llvm/llc" -O3 -filetype=obj -relocation-model=static -code-model=kernel \
			-function-sections -data-sections -enable-tail-merge=0 -stack-size-section -o "$2"
	short_chains "$2.calls" "$2"
	# Here, as Rust's own library has functions on memory that are not counted.
	objcopy "${counted[@]}" "$2"
}

# copy FILE... DIR: copies only files that have changed, so that make rebuilds no more than needed.
copy() {
	local dir=${*: -1} file
	mkdir -p "$dir"
	for file in "${@:1:$#-1}"; do
		cmp -s "$file" "$dir/$(basename "$file")" || cp "$file" "$dir/"
	done
}

# The compiler named by the headers, which make would use, may not be installed.
if [ -z "${CC:-}" ]; then
	named=$(printf '.PHONY: cc\ninclude %s/.kernelvariables\ncc:\n\t@echo $(CC)\n' "$build" |
		make -s -f - cc 2>/dev/null || :)
	[ -z "$named" ] || command -v "${named##* }" >/dev/null || CC=gcc
fi

# The functions that an object defines.
defined() {
	nm --defined-only "$1" | awk '$2 ~ /^[tT]$/ { print $3 }' | sort -u
}

# Does the module have types (BTF)? Here as after `nm` below, grep -q would end before the command
# that feeds it, whose failure would then be the result.
has_types() {
	readelf -SW "$1" | grep ' \.BTF ' >/dev/null
}

# If the kernel's headers have no vmlinux, modules are built without types (BTF). BPF needs these
# types to find the core's functions.
add_types() {
	local module=$1 resolve=$build/tools/bpf/resolve_btfids/resolve_btfids
	! has_types "$module" || return 0
	[ -x "$resolve" ] ||
		lacks "$module has no types (BTF), and the headers of kernel $release lack what adds" \
			"them: $resolve"
	LLVM_OBJCOPY=objcopy pahole -J --btf_features=default --btf_base "$types" "$module" &&
		"$resolve" -b "$types" "$module" &&
		has_types "$module" ||
		lacks "$module was given no types (BTF) by pahole and resolve_btfids, with those of $types"
}

module() {
	local dir=$1 log
	shift
	log=$dir/make.log
	make -s -C "$build" M="$dir" ${CC:+CC="$CC"} \
		${without:+KCFLAGS=-DBATON_WITHOUT_RECORDING} "$@" modules >"$log" 2>&1 ||
		{ cat "$log" >&2; return 1; }
	# objtool cannot be told that a function changes stacks without returning
	local harmless='skipping BTF|baton_unwind|rust_begin_unwind|compiler differs|pahole version differs'
	grep -E 'warning:|error:' "$log" | grep -vE "$harmless" >&2 || :
}

build_core() {
	local out=$1 dir=$work/core
	copy "$here"/*.[chS] "$top"/policy/c/*.h "$dir"
	rm -f "$dir/policy_module.c" "$dir"/*.bpf.c
	cp "$here/Kbuild.core" "$dir/Kbuild"
	local exports=()
	mapfile -t exports < <(
		grep -ohE '\bbaton_core_[a-z_]+\(' "$here/core.h" "$here/record.h" "$here/channel.h" |
			tr -d '(' | sort -u
	)
	rust_library "$here/core-lib" baton_core_lib
	ld -r --gc-sections "${exports[@]/#/-u}" -o "$dir/core_lib.raw" "$library"
	shipped "$dir/core_lib.raw" "$dir/core_lib.o_shipped" --strip-debug
	! nm "$dir/core_lib.o_shipped" | grep baton_core_must_not_panic >/dev/null ||
		die "the rules (hosts/core) can panic: baton_core_must_not_panic is linked in" \
			"(Baton's own fault)"
	module "$dir"
	add_types "$dir/baton.ko"
	if [ ! -s "$dir/vmlinux.h" ]; then
		bpftool btf dump file "$types" format c >"$dir/vmlinux.h.new" ||
			lacks "bpftool cannot read the types in $types"
		mv "$dir/vmlinux.h.new" "$dir/vmlinux.h"
	fi
	local object
	for object in shim latency cores; do
		copy "$here/$object.bpf.c" "$dir/bpf"
		clang -O2 -g -target bpf -mcpu=v3 -D__TARGET_ARCH_x86 -fms-extensions -Wall \
			-Wno-microsoft-anon-tag -Wno-missing-declarations -DBPF_NO_PRESERVE_ACCESS_INDEX -I"$dir" \
			-c "$dir/bpf/$object.bpf.c" -o "$dir/$object.bpf.o"
	done
	# Three quarters of it are debug information, which each load would read.
	mkdir -p "$dir/stripped"
	objcopy --strip-debug "$dir/baton.ko" "$dir/stripped/baton.ko"
	copy "$dir/stripped/baton.ko" "$dir"/*.bpf.o "$out"
}

build_agent() {
	local out=$1 core=$work/core dir=$work/agent
	[ -e "$core/Module.symvers" ] || build_core "$out"
	copy "$top"/hosts/agent/kernel/*.[ch] "$here/interrupt.h" "$here/register.h" \
		"$top"/policy/c/*.h "$dir"
	cp "$top/hosts/agent/kernel/Kbuild" "$dir/Kbuild"
	module "$dir" KBUILD_EXTRA_SYMBOLS="$core/Module.symvers"
	copy "$dir/baton_agent.ko" "$out"
}

# Generates the crate around a policy crate. The policy's functions check their stack, and so do
# those that are compiled in this crate: generic ones, and what the policy marks as inline. Overflows
# are checked in both. The profile itself is that of core-lib, so that Rust's core library is built
# once for all.
wrap() {
	local policy=$1 package=$2 dir=$3 forbid=', "-Funsafe-code"' crate
	[ -z "${BATON_ALLOW_UNSAFE:-}" ] || forbid=
	mkdir -p "$dir/src"
	cat >"$dir/Cargo.toml.new" <<-TOML
		cargo-features = ["profile-rustflags"]
		[package]
		name = "baton-module-$package"
		version = "0.1.0"
		edition = "2021"
		[lib]
		name = "baton_module_${package//-/_}"
		crate-type = ["staticlib"]
		[dependencies]
		policy = { package = "$package", path = "$policy" }
		baton-glue = { path = "$here/glue" }
		[profile.release]
		panic = "abort"
		lto = "fat"
		codegen-units = 1
		opt-level = 3
		[workspace]
		[profile.release.package.baton-module-$package]
		rustflags = ["-Zinstrument-mcount"]
		overflow-checks = true
		[profile.release.package.$package]
		overflow-checks = true
		rustflags = ["-Zinstrument-mcount"$forbid]
	TOML
	for crate in baton baton-abi baton-bridge baton-glue \
		baton-message baton-seam; do
		printf '[profile.release.package.%s]\noverflow-checks = true\n' "$crate"
	done >>"$dir/Cargo.toml.new"
	renew "$dir/Cargo.toml"
	printf '#![no_std]\nbaton_glue::export!(policy::BatonPolicy);\n' >"$dir/src/lib.rs.new"
	renew "$dir/src/lib.rs"
}

# clang_flags DIR NAME: sets `flags` to the kernel's flags for a file in C, as clang knows them.
# kbuild prints them for the compiler that built the kernel, which is GCC.
clang_flags() {
	local dir=$1 flag next=
	make -s -C "$build" M="$dir" ${CC:+CC="$CC"} BATON_POLICY="$2" policy_module.o \
		>"$dir/make.log" 2>&1 ||
		{ cat "$dir/make.log" >&2; return 1; }
	flags=()
	for flag in $(sed -n 's/^savedcmd_policy_module.o := [^ ]* //p' "$dir/.policy_module.o.cmd"); do
		case $next$flag in
		-include) next=$flag; continue ;;
		-include*) flags+=(-include "$flag") ;;
		-mpreferred-stack-boundary=3) flags+=(-mstack-alignment=8) ;;
		-mindirect-branch=thunk-extern) flags+=(-mretpoline-external-thunk) ;;
		-mindirect-branch-* | -mrecord-mcount | -mfentry | -DCC_USING_FENTRY | -mno-fp-ret-in-387) ;;
		-fpatchable-function-entry=* | -fmin-function-alignment=* | -fno-allow-store-data-races) ;;
		-fzero-init-padding-bits=* | -fdiagnostics-* | -fno-stack-check | -fconserve-stack) ;;
		-falign-jumps=* | -falign-loops=* | -fomit-frame-pointer | -fno-strict-overflow | -pg) ;;
		-fsanitize=* | -fasan-* | -fplugin*) ;;
		-Wvla-* | -Wp,* | -c | -DKBUILD_BASENAME=*) ;;
		-I/*) flags+=(-isystem "${flag#-I}") ;;
		-D* | -I* | -f* | -m* | -O* | -g* | -std=* | -nostdinc) flags+=("${flag//\'/}") ;;
		esac
		next=
	done
	[ ${#flags[@]} -gt 0 ] ||
		die "kbuild does not say how it compiles C: $dir/.policy_module.o.cmd (Baton's own fault)"
	flags+=(-fsanitize=array-bounds,shift-exponent,signed-integer-overflow -fsanitize-trap=all
		-fno-sanitize-merge -DKBUILD_BASENAME="\"policy\"" -Wall -Wextra -Wno-unused-parameter
		-Wno-sign-compare -Werror=vla -Werror=alloca)
}

# c_bitcode DIR NAME OUT FILE...: compiles a policy in C.
c_bitcode() {
	local dir=$1 out=$3 file flags parts=()
	clang_flags "$dir" "$2"
	shift 3
	for file in "$@"; do
		(cd "$dir" && "$llvm/clang" "${flags[@]}" -c -emit-llvm -o "$file.bc" "$file")
		parts+=("$dir/$file.bc")
	done
	"$llvm/llvm-link" -o "$out" "${parts[@]}"
}

build_policy() {
	# The tools' packages are named as their directory.
	[ -x "$llvm/opt" ] && [ -x "$llvm/clang" ] ||
		lacks "LLVM of rustc's version, which compiles policies, is not installed:" \
			"Debian's packages llvm-N and clang-N for $llvm"
	local policy out=$2 package name dir code sources=() headers=()
	policy=$(cd "$1" && pwd)
	if [ -e "$policy/Cargo.toml" ]; then
		package=$(sed -n 's/^name *= *"\(.*\)"/\1/p' "$policy/Cargo.toml" | head -n 1)
		name=${package//-/_}
	else
		package=$(basename "$policy")
		name=${package//-/_}
		mapfile -t sources < <(cd "$policy" && ls ./*.c)
		mapfile -t headers < <(cd "$policy" && compgen -G './*.h')
		[ ${#sources[@]} -gt 0 ] || die "$policy has neither a Cargo.toml nor a C file (user)"
	fi
	dir=$work/policy-$name$unpolled
	local core=$work/core
	[ -e "$core/Module.symvers" ] || build_core "$out"
	copy "$here/policy_module.c" "$here/register.h" "$top"/policy/c/*.h "$dir"
	cp "$here/Kbuild.policy" "$dir/Kbuild"
	if [ ${#sources[@]} -gt 0 ]; then
		copy "${sources[@]/#/$policy/}" "${headers[@]/#/$policy/}" "$dir"
		code=$dir/c.bc
		c_bitcode "$dir" "$name" "$code" "${sources[@]#./}"
		bounded "$code" "$dir/policy_code.raw"
	else
		wrap "$policy" "$package" "$dir/wrapper"
		# Cargo takes a library that it has built before for another checkout, and leaves this file.
		code=$dir/$(echo "$top $policy" | sha256sum | cut -c1-16).bc
		rust_library "$dir/wrapper" "baton_module_$name" "llvm-bc=$code,link"
		bounded "$code" "$dir/rust.o"
		ld -r --gc-sections -u BATON_POLICY_OPS -o "$dir/policy_code.raw" "$dir/rust.o" "$library"
	fi
	shipped "$dir/policy_code.raw" "$dir/policy_code.o_shipped"
	module "$dir" BATON_POLICY="$name" KBUILD_EXTRA_SYMBOLS="$core/Module.symvers"
	# The kernel finds the functions for BPF programs by their names, and takes those of the newest
	# module.
	local taken
	taken=$(comm -12 <(defined "$dir/baton_$name.ko") <(defined "$core/baton.ko") |
		grep '^baton_' | tr '\n' ' ' || :)
	[ -z "$taken" ] ||
		die "the policy $name has functions with names of the core's: ${taken}(rename them; user)"
	copy "$dir/baton_$name.ko" "$out"
}

mkdir -p "$cache/build"
exec 9>"$cache/build/lock"
flock 9
case ${1-} in
core) build_core "${2:?OUTDIR}" ;;
agent) build_agent "${2:?OUTDIR}" ;;
policy) build_policy "${2:?DIR}" "${3:?OUTDIR}" ;;
*) die "usage: build.sh core OUTDIR | agent OUTDIR | policy DIR OUTDIR (user)" ;;
esac
