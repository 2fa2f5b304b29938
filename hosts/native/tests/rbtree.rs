// SPDX-License-Identifier: GPL-2.0-only
//! The tree that policies in C use in user space, under the compiler's sanitizers.

use std::process::Command;

#[test]
fn a_tree_keeps_its_rules() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("rbtree");
    let compiler = std::env::var("CC").unwrap_or("gcc".into());
    let built = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .arg(format!("-I{here}/c"))
        .arg(format!("{here}/tests/rbtree.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.expect("the compiler starts").success());
    let ended = Command::new(program).status();
    assert!(ended.expect("the program starts").success());
}
