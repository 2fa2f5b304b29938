// SPDX-License-Identifier: GPL-2.0-only
//! The requirements of the tool's binary are those that the documentation states.

use std::process::Command;

/// The page that documents the oldest supported glibc.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kernel-policy.md");

/// The version that follows these words in a text.
fn after(text: &str, words: &str) -> Option<(u32, u32)> {
    let rest = text.split_once(words)?.1;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[test]
fn the_least_glibc_is_the_documented_one() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let said = after(&page, "needs glibc ").expect("the page says which glibc the tool needs");
    let binary = env!("CARGO_BIN_EXE_baton");
    let symbols = Command::new("objdump")
        .args(["-T", binary])
        .output()
        .expect("objdump runs");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let least = symbols
        .lines()
        .filter_map(|line| after(line, "GLIBC_"))
        .max();
    assert_eq!(
        least,
        Some(said),
        "{PAGE} names another glibc than {binary} needs"
    );
    // Debian 12 has 2.36.
    assert!(said <= (2, 36), "{symbols}");
}
