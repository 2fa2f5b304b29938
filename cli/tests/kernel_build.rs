// SPDX-License-Identifier: GPL-2.0-only
//! hosts/kernel/build.sh when the tools that it calls fail. The script runs with other programs in
//! place of compilers and make. Runs inside Baton's Debian root, which has kernel headers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hosts/kernel/build.sh");

/// Programs that only create the file that the script needs next.
const PROGRAMS: [(&str, &str); 7] = [
    ("cargo", ""),
    // An object without anything in it: its sizes of frames are read.
    (
        "ld",
        "while [ \"$1\" != -o ]; do shift; done; as -o \"$2\" /dev/null",
    ),
    ("objcopy", "for last; do :; done; : >\"$last\""),
    (
        "make",
        "for word; do case $word in M=*) : >\"${word#M=}/baton.ko\" ;; esac; done",
    ),
    ("nm", ""),
    ("pahole", ""),
    ("clang", ""),
];

/// Builds the core with these programs in place of some of the above. Returns the exit code, the
/// messages, and whether there is a vmlinux.h.
fn build(other: &[(&str, &str)]) -> (Option<i32>, String, bool) {
    let dir = tempfile::tempdir().unwrap();
    let programs = dir.path().join("bin");
    fs::create_dir(&programs).unwrap();
    for (name, text) in PROGRAMS.iter().chain(other) {
        let file = programs.join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::join_paths(
        [programs]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let out = Command::new("bash")
        .args([SCRIPT, "core"])
        .arg(dir.path().join("out"))
        .env("PATH", path.unwrap())
        .env("BATON_CACHE", dir.path())
        .env("BATON_KERNEL", release())
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let header = dir
        .path()
        .join("build")
        .join(release())
        .join("core/vmlinux.h");
    (out.status.code(), said, header.exists())
}

/// A kernel with installed headers.
fn release() -> String {
    let releases = fs::read_dir("/lib/modules").expect("/lib/modules");
    let releases = releases.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut releases =
        releases.filter(|name| Path::new(&format!("/lib/modules/{name}/build/vmlinux")).exists());
    releases.next().expect("a kernel's headers")
}

#[test]
fn a_core_without_types_is_no_success() {
    let (code, said, _) = build(&[("readelf", "echo ' .text '")]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("has no types (BTF)") || said.contains("was given no types (BTF)"),
        "{said}"
    );
}

#[test]
fn types_that_cannot_be_read_leave_no_header() {
    let fails = [
        ("readelf", "echo ' .BTF '"),
        ("bpftool", "echo 'struct half {'; exit 1"),
    ];
    let (code, said, header) = build(&fails);
    assert_eq!((code, header), (Some(3), false), "{said}");
    assert!(said.contains("bpftool cannot read the types in "), "{said}");
    // The same with a program that works.
    let works = [
        ("readelf", "echo ' .BTF '"),
        ("bpftool", "echo 'struct whole {};'"),
    ];
    assert!(build(&works).2);
}
