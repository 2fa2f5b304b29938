// SPDX-License-Identifier: GPL-2.0-only
//! Links the tool so that it starts with an older C library than the one it is built with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The standard library asks at run time whether the C library has these, and does without. Its
    // weak references would still make a binary that is linked against glibc 2.39 or later need
    // that version to start; defined as absent, they do not.
    for symbol in ["pidfd_spawnp", "pidfd_getpid"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--defsym={symbol}=0");
    }
}
