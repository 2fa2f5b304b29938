// SPDX-License-Identifier: GPL-2.0-only
//! `baton fmt`: the policies of the tree are formatted; a policy without any of its spaces becomes
//! the same policy.

use std::fs;
use std::path::{Path, PathBuf};

/// The policies of the tree in the language.
fn policies() -> Vec<PathBuf> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let dirs = fs::read_dir(tree)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = dirs.filter(|dir| dir.is_dir()).flat_map(|dir| {
        let entries = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries.collect::<Vec<_>>()
    });
    let found: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|it| it == "baton"))
        .collect();
    assert!(found.len() >= 2);
    found
}

#[test]
fn the_policies_are_formatted() {
    for path in policies() {
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            baton_lang::format(&text).unwrap(),
            text,
            "{}",
            path.display()
        );
    }
}

#[test]
fn spaces_do_not_matter() {
    for path in policies() {
        let text = fs::read_to_string(&path).unwrap();
        let flat: Vec<&str> = text.lines().map(str::trim).collect();
        let flat = flat.join("\n").replace(" = ", "=").replace("( ", "(");
        assert_eq!(
            baton_lang::format(&flat).unwrap(),
            text,
            "{}",
            path.display()
        );
    }
}

#[test]
fn lines_signs_and_comments() {
    let text = "scheduler p{\n\n\n// A comment.\ncore{READY   queue q;}   /* another */\n\n\
                int f(int a , int b){\nif(! (a<- 1)&&b >0)\nreturn - a\n+ b;\nreturn f2 (a)++;}\n\n}";
    // It cannot be read.
    assert!(baton_lang::format(text).is_err());
    let text = text.replace("f2 (a)++", "f2 (a)");
    let formatted = "scheduler p {\n    // A comment.\n    core { READY queue q; } /* another */\n\n    \
                     int f(int a, int b) {\n        if (!(a < -1) && b > 0)\n            return -a\n\
                     \x20               + b;\n        return f2(a); }\n}\n";
    assert_eq!(baton_lang::format(&text).unwrap(), formatted);
    assert_eq!(baton_lang::format(formatted).unwrap(), formatted);
}

/// The table of the docs has the lines of each policy that are neither empty nor a comment.
#[test]
fn the_docs_count_the_lines() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language/README.md");
    let page = fs::read_to_string(page).unwrap();
    for path in policies() {
        let text = fs::read_to_string(&path).unwrap();
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = text.lines().filter(is_code).count();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let row = format!("| [`{name}`](../policies/{name}.md) | {lines} |");
        assert!(
            page.contains(&row),
            "docs/language/README.md has no `{row}`"
        );
    }
}
