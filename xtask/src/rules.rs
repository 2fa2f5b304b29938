// SPDX-License-Identifier: GPL-2.0-only
//! The house rules that can be checked in the text of files. Each rule returns its violations, as
//! `path:line: what is wrong`.

use crate::files::File;

const LICENCE: &str = "SPDX-License-Identifier: GPL-2.0-only";

/// Extensions of files that need no licence line, because a tool generates them or because they
/// contain only data. The list also has the names of files that contain the licence itself. All
/// files under a directory `golden` need no licence line either.
const NO_SOURCE: &[&str] = &["lock", "stderr", "json", "svg", "LICENSE", "COPYING"];

/// Marks of unfinished work. They are split, so that this file obeys the rule.
const UNDONE: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("#[", "ignore"),
];

/// The directories whose crates must forbid unsafe code: the policies, and the crates that they are
/// written against.
const SAFE_CRATES: &[&str] = &["policies/", "policy/api/", "policy/abi/", "policy/message/"];
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Checks the rules that apply to each file by itself.
pub fn of_file(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    if !NO_SOURCE.contains(&file.extension()) && !file.path.contains("/golden/") {
        // A script's first line names the interpreter.
        let head = file
            .text
            .lines()
            .take(if file.text.starts_with("#!/") { 2 } else { 1 });
        if !head.clone().any(|line| line.contains(LICENCE)) {
            found.push(format!(
                "{}:1: the first line must have `{LICENCE}`",
                file.path
            ));
        }
        for (number, line) in numbered(&file.text) {
            if let Some(word) = UNDONE.iter().find(|word| line.contains(**word)) {
                found.push(format!(
                    "{}:{number}: {word}: do it, or describe what is not done where users look",
                    file.path
                ));
            }
        }
    }
    if file.name() == "Cargo.toml" {
        found.extend(dependencies_have_reasons(file));
    }
    found
}

/// Checks that each dependency on a foreign crate has a comment on the line above.
fn dependencies_have_reasons(file: &File) -> Vec<String> {
    let (mut found, mut is_dependency, mut above) = (Vec::new(), false, "");
    for (number, line) in numbered(&file.text) {
        if line.starts_with('[') {
            is_dependency = line.trim_end().ends_with("dependencies]");
        } else if is_dependency
            && line.contains('=')
            && !line.starts_with('#')
            && !line.contains("path =")
            && !above.starts_with('#')
        {
            found.push(format!(
                "{}:{number}: the line above a dependency must say what it is for",
                file.path
            ));
        }
        above = line;
    }
    found
}

/// Checks that policies, and the crates they are written against, forbid unsafe code before any
/// item, and that the word `unsafe` does not occur in the code of policies.
pub fn policies_forbid_unsafe(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "rs") {
        let Some(crate_path) = SAFE_CRATES
            .iter()
            .find(|path| file.path.starts_with(**path))
        else {
            continue;
        };
        let is_policy = *crate_path == "policies/";
        // Inner attributes precede all items, so only lines like these can precede the attribute.
        let mut head = file.text.lines().take_while(|line| {
            line.is_empty() || line.starts_with("//") || line.starts_with("#![")
        });
        if file.path.ends_with("src/lib.rs") && !head.any(|line| line == FORBID) {
            found.push(format!("{}:1: must begin with `{FORBID}`", file.path));
        }
        for (number, line) in numbered(&file.text).filter(|_| is_policy) {
            let code = line.split("//").next().unwrap_or("");
            if code
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe")
            {
                found.push(format!(
                    "{}:{number}: a policy has no unsafe code",
                    file.path
                ));
            }
        }
    }
    found
}

/// Checks that each path in ARCHITECTURE.md exists. A path is a text in backticks that contains a
/// slash, but does not begin with one.
pub fn architecture_paths(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let Some(file) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md:1: does not exist".into()];
    };
    let mut found = Vec::new();
    for (number, line) in numbered(&file.text) {
        for quoted in line.split('`').skip(1).step_by(2) {
            let is_path = quoted.contains('/')
                && !quoted.starts_with('/')
                && quoted
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "/._-*".contains(c));
            // `policies/*` exists when `policies` exists.
            if is_path && !exists(quoted.trim_end_matches(['*', '/'])) {
                found.push(format!(
                    "ARCHITECTURE.md:{number}: `{quoted}` does not exist"
                ));
            }
        }
    }
    found
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks one file against the rules for each file; `expected` has the path and line of each
    /// violation.
    fn check(path: &str, text: &str, expected: &[&str]) {
        let found = of_file(&File::of(path, text));
        let places: Vec<String> = found
            .iter()
            .map(|f| f.splitn(3, ':').take(2).collect::<Vec<_>>().join(":"))
            .collect();
        assert_eq!(places, expected, "{found:?}");
    }

    #[test]
    fn licence_lines() {
        check("a.rs", &format!("// {LICENCE}\n"), &[]);
        check("a.sh", &format!("#!/bin/sh\n# {LICENCE}\n"), &[]);
        check("a.rs", &format!("//! Doc.\n// {LICENCE}\n"), &["a.rs:1"]);
        check("policy/empty.toml", "", &["policy/empty.toml:1"]);
        check("Cargo.lock", "", &[]);
        check("cli/tests/golden/status.txt", "", &[]);
    }

    #[test]
    fn what_is_undone() {
        check(
            "a.c",
            &format!("// {LICENCE}\n\n/* {} */\n", UNDONE[0]),
            &["a.c:3"],
        );
        check(
            "a.rs",
            &format!("// {LICENCE}\n{}]\n", UNDONE[2]),
            &["a.rs:2"],
        );
    }

    #[test]
    fn reasons_of_dependencies() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nours = { path = \"../ours\" }\n# \
            Why.\ngood = \"1\"\nbad = \"1\"\n";
        check(
            "a/Cargo.toml",
            &format!("# {LICENCE}\n{manifest}"),
            &["a/Cargo.toml:8"],
        );
    }

    #[test]
    fn unsafe_in_policies() {
        let good = format!(
            "// {LICENCE}\n//! No unsafe code.\n#![no_std]\n{FORBID}\nfn f() {{}} // unsafe\n"
        );
        let late = format!("fn f() {{}}\n{FORBID}\n");
        let files = [
            File::of("policies/a/src/lib.rs", &good),
            File::of("policies/b/src/lib.rs", &late),
            File::of("policies/b/src/queue.rs", "unsafe fn f() {}"),
            File::of("policy/seam/src/lib.rs", "unsafe fn f() {}"),
            File::of("policy/api/src/lib.rs", ""),
        ];
        let found = policies_forbid_unsafe(&files);
        let starts = [
            "policies/b/src/lib.rs:1:",
            "policies/b/src/queue.rs:1:",
            "policy/api/src/lib.rs:1:",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        assert!(
            found
                .iter()
                .zip(starts)
                .all(|(found, start)| found.starts_with(start)),
            "{found:?}"
        );
    }

    #[test]
    fn paths_in_the_architecture() {
        let text = "`hosts/core` and `policies/*`\n`/dev/baton`, `cargo xtask`, `a::b/c`, \
            `hosts/gone.rs`\n";
        let found = architecture_paths(&[File::of("ARCHITECTURE.md", text)], |path| {
            ["hosts/core", "policies"].contains(&path)
        });
        assert_eq!(found, ["ARCHITECTURE.md:2: `hosts/gone.rs` does not exist"]);
        assert_eq!(architecture_paths(&[], |_| true).len(), 1);
    }
}
