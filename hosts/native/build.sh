#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds a policy for user space, inside the Debian testing root:
#   build.sh DIR OUTDIR baton_NAME.so of the policy in DIR (a Rust crate, or a folder with C files)
#   With BATON_ALLOW_UNSAFE=1 a policy in Rust may have unsafe code of its own. With
#   BATON_DEBUGGABLE set, for a debugger: nothing is optimised away, so that all variables can be
#   read. With BATON_CHECKED set, for the checker: its atomics are scheduling points (c/atomics.c).
#   Work is kept under $BATON_CACHE/build, so that a second build is quick. Prints nothing but
#   errors.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${BATON_CACHE:-/var/cache/baton}
policy=$(cd "${1:?DIR}" && pwd)
out=${2:?OUTDIR}

profile=release built=release optimise=-O2
if [ -n "${BATON_DEBUGGABLE:-}" ]; then profile=dev built=debug optimise=-O0; fi

points='' flavour=''
if [ -n "${BATON_CHECKED:-}" ]; then points=$cache/build/native/atomics.o flavour=-checked; fi

# For unstable features of the wrapper: alloc_error_hook, and flags for the policy's crate alone.
export RUSTC_BOOTSTRAP=1
# Part of the layout of states (policy/api/src/state.rs).
BATON_RUSTC=$(rustc --version)
export BATON_RUSTC

# write FILE: writes standard input to FILE, if the text differs.
write() {
	mkdir -p "$(dirname "$1")"
	cat >"$1.new"
	if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

build_rust() {
	local package name dir own=() all=("--remap-path-prefix=$top/=")
	[ -n "${BATON_ALLOW_UNSAFE:-}" ] || own+=('"-Funsafe-code"')
	# Descriptors make an access to a thread's variables in a library nearly as cheap as in a program.
	all+=("-Cllvm-args=-enable-tlsdesc")
	[ -z "$points" ] || own+=('"-Cpasses=tsan"') all+=("-Clink-arg=$points")
	own=$(IFS=,; echo "${own[*]}")
	package=$(sed -n 's/^name *= *"\(.*\)"/\1/p' "$policy/Cargo.toml" | head -n 1)
	name=${package//-/_}
	dir=$cache/build/native/$name$flavour
	write "$dir/Cargo.toml" <<-TOML
		cargo-features = ["profile-rustflags"]
		[package]
		name = "baton-native-$package"
		version = "0.1.0"
		edition = "2021"
		[lib]
		name = "baton_native_$name"
		crate-type = ["cdylib"]
		[dependencies]
		policy = { package = "$package", path = "$policy" }
		baton-native-glue = { path = "$here/glue" }
		[profile.release]
		lto = false
		codegen-units = 1
		overflow-checks = true
		debug = "line-tables-only"
		[profile.release.package.$package]
		rustflags = [$own]
		[profile.dev]
		debug-assertions = false
		overflow-checks = true
		[profile.dev.package.$package]
		rustflags = [$own]
		[workspace]
	TOML
	write "$dir/src/lib.rs" <<-RUST
		#![feature(alloc_error_hook)]
		baton_native_glue::export!(policy::BatonPolicy);
	RUST
	(cd "$dir" && CARGO_TARGET_DIR="$cache/build/native-target$flavour" RUSTFLAGS="${all[*]}" \
		cargo build --quiet --profile "$profile")
	install -D "$cache/build/native-target$flavour/$built/libbaton_native_$name.so" "$out/baton_$name.so"
}

# The kernel headers that c/words.h replaces.
KERNEL_HEADERS="linux/types.h linux/kernel.h linux/cache.h linux/compiler.h linux/atomic.h linux/minmax.h linux/container_of.h \
linux/array_size.h linux/limits.h linux/overflow.h linux/rbtree.h linux/string.h asm/rqspinlock.h"

# Makes READ_ONCE() and WRITE_ONCE() scheduling points.
volatile_atomics() {
	if "${CC:-gcc}" --version | grep -q clang; then
		echo "-mllvm -tsan-distinguish-volatile=1"
	else
		echo "--param=tsan-distinguish-volatile=1"
	fi
}

# What the kernel's compiler flags define is allowed, and the processor finds NULL pointers and
# divisions by zero. Each check has a trap of its own, so that the trap has the line.
undefined_traps() {
	local version
	version=$("${CC:-gcc}" --version)
	echo "-fsanitize=undefined -fsanitize-trap=undefined" \
		"-fno-sanitize=null,integer-divide-by-zero,alignment,pointer-overflow,signed-integer-overflow"
	[[ $version == *clang* ]] || echo "-fno-crossjumping -fno-tree-tail-merge"
}

build_c() {
	local name dir header compile sources
	name=$(basename "$policy")
	name=${name//-/_}
	dir=$cache/build/native/$name$flavour
	for header in $KERNEL_HEADERS; do
		echo '#include "words.h"' | write "$dir/include/$header"
	done
	# Unaligned access, aliasing and overflow as with the kernel's compiler flags; with symbols, for
	# the lines of crashes. What C does not define is a trap.
	compile=("${CC:-gcc}" $(undefined_traps) -std=gnu11 "$optimise" -g -fPIC -fvisibility=hidden -fno-strict-aliasing -fno-strict-overflow -fstrict-flex-arrays=3
		-fstack-clash-protection -ffile-prefix-map="$top/=" -Wall -Wextra -Wno-unused-parameter
		-DBATON_POLICY_NAME="\"$name\"" -I"$dir/include" -I"$here/c" -I"$top/policy/c" -I"$policy")
	if [ -n "$points" ]; then
		"${compile[@]}" -r -nostdlib $(volatile_atomics) -fsanitize=thread -o "$dir/policy.o" "$policy"/*.c
		sources=("$dir/policy.o" "$points")
	else
		sources=("$policy"/*.c)
	fi
	"${compile[@]}" -shared -Wl,-z,defs -o "$dir/policy.so" "$here/c/host.c" "${sources[@]}"
	install -D "$dir/policy.so" "$out/baton_$name.so"
}

mkdir -p "$cache/build"
exec 9>"$cache/build/native.lock"
flock 9
if [ -n "$points" ]; then
	mkdir -p "${points%/*}"
	"${CC:-gcc}" -O2 -fPIC -fvisibility=hidden -c -o "$points" "$here/c/atomics.c"
fi
if [ -e "$policy/Cargo.toml" ]; then
	build_rust
elif compgen -G "$policy/*.c" >/dev/null; then
	build_c
else
	echo "baton build: $policy has neither a Cargo.toml nor a C file (user)" >&2
	exit 1
fi
