// SPDX-License-Identifier: GPL-2.0-only
//! Links the tool so that it starts with an older C library than that of the build.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The standard library checks at run time whether the C library has these functions, and works
    // without them. Its weak references would still require the version of the build (glibc 2.39 or
    // later). Symbols that are defined as absent do not.
    for symbol in ["pidfd_spawnp", "pidfd_getpid"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--defsym={symbol}=0");
    }
}
