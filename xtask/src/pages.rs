// SPDX-License-Identifier: GPL-2.0-only
//! Checks that each policy has a page, and that the page repeats word for word the numbered rules
//! in the header of the policy's source.

use crate::files::File;

/// The folder under `policies` for policies of tests. They need no page.
pub const FOR_TESTS: &str = "testing";
const HEADING: &str = "## The rules";

/// Returns the violations, as `path: what is wrong`.
pub fn violations(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for source in files {
        let Some((policy, path)) = source
            .path
            .strip_prefix("policies/")
            .and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        // The file with the header: the root of the crate, or the file in C.
        if policy == FOR_TESTS || (path != "src/lib.rs" && path != format!("{policy}.c")) {
            continue;
        }
        let page = format!("docs/policies/{}.md", policy.replace('-', "_"));
        let rules = numbered(source.text.lines().map(comment));
        let on_page = match files.iter().find(|file| file.path == page) {
            Some(page) => numbered(
                page.text
                    .lines()
                    .skip_while(|line| *line != HEADING)
                    .map(str::trim_start),
            ),
            None => {
                found.push(format!("{page}: does not exist: a policy has a page"));
                continue;
            }
        };
        if rules.is_empty() {
            found.push(format!("{}: the header numbers no rules", source.path));
        } else if rules != on_page {
            let same = rules
                .iter()
                .zip(&on_page)
                .take_while(|(rule, on_page)| rule == on_page)
                .count();
            let from = rules[same.min(rules.len() - 1)..]
                .iter()
                .take(6)
                .copied()
                .collect::<Vec<_>>()
                .join(" ");
            found.push(format!(
                "{page}: `{HEADING}` has not the words of {} from \"{from}\" on",
                source.path
            ));
        }
    }
    found
}

/// The source whose faults pages show, and a mark on the line that they show.
const SHOWN: (&str, &str) = (
    "policies/testing/faulty/src/wrong.rs",
    "// README.md shows this line.",
);

/// Finds pages that show a fault of `policies/testing/faulty` with a wrong line: as a place
/// (`wrong.rs:7`), or as a debugger lists the line itself (its number, a tab, its text).
pub fn wrong_lines(files: &[File]) -> Vec<String> {
    let (path, mark) = SHOWN;
    let source = files.iter().find(|file| file.path == path);
    let Some(at) = source.and_then(|file| file.text.lines().position(|line| line.ends_with(mark)))
    else {
        return vec![format!(
            "{path}: no line is marked as the one that README.md shows"
        )];
    };
    let line = (at + 1).to_string();
    let code = source
        .and_then(|file| file.text.lines().nth(at))
        .unwrap_or_default();
    let code = code.trim_end_matches(mark).trim();
    let mut wrong = Vec::new();
    for page in files.iter().filter(|file| file.extension() == "md") {
        let places = page.text.split("wrong.rs:").skip(1);
        let places = places.map(|rest| {
            rest.split(|c: char| !c.is_ascii_digit())
                .next()
                .unwrap_or("")
        });
        let listed = page.text.lines().filter_map(|shown| shown.split_once('\t'));
        let listed = listed
            .filter(|(_, text)| text.trim() == code)
            .map(|(number, _)| number);
        for _ in places.chain(listed).filter(|shown| *shown != line) {
            wrong.push(format!(
                "{}: the fault that it shows is in line {line} of {path}",
                page.path
            ));
        }
    }
    wrong
}

/// The text of a header line; empty for any other line, such as the end of a comment in C.
fn comment(line: &str) -> &str {
    line.strip_prefix("//!")
        .or(line.strip_prefix(" *").filter(|text| *text != "/"))
        .unwrap_or("")
        .trim_start()
}

/// The words of the list that begins with `1.`, up to the next empty line.
fn numbered<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    lines
        .skip_while(|line| !line.starts_with("1. "))
        .take_while(|line| !line.is_empty())
        .flat_map(str::split_whitespace)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks pages and sources: each violation begins with the expected text.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).into(),
                text: (*text).into(),
            })
            .collect();
        let found = violations(&files);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(
            found
                .iter()
                .zip(expected)
                .all(|(found, expected)| found.contains(expected)),
            "{found:?}"
        );
    }

    const RUST: (&str, &str) = (
        "policies/a-b/src/lib.rs",
        "//! `a_b`: one.\n//!\n//! 1. First\n//!    one.\n//! 2. Then.\n#![no_std]\n",
    );

    #[test]
    fn rules_are_the_same_in_other_lines() {
        check(
            &[
                RUST,
                (
                    "docs/policies/a_b.md",
                    "1. no\n\n## The rules\n\nAs in:\n\n1. First one.\n2. Then.\n\n## Z\n",
                ),
            ],
            &[],
        );
        let c = (
            "policies/c/c.c",
            "/*\n * `c`: one.\n *\n * 1. First\n *    one.\n *\n * More.\n */\n",
        );
        check(
            &[c, ("docs/policies/c.md", "## The rules\n\n1. First one.\n")],
            &[],
        );
    }

    #[test]
    fn what_differs_is_named() {
        check(&[RUST], &["docs/policies/a_b.md: does not exist"]);
        check(
            &[RUST, ("docs/policies/a_b.md", "1. First one.\n2. Then.\n")],
            &["from \"1. First one. 2. Then.\""],
        );
        check(
            &[
                RUST,
                (
                    "docs/policies/a_b.md",
                    "## The rules\n\n1. First\n2. Then.\n",
                ),
            ],
            &["from \"one. 2. Then.\""],
        );
        check(
            &[
                RUST,
                (
                    "docs/policies/a_b.md",
                    "## The rules\n1. First one.\n2. Then.\n3. Last.\n",
                ),
            ],
            &["a_b.md: `## The"],
        );
        check(
            &[
                ("policies/testing/faulty/src/lib.rs", ""),
                ("policies/a/src/other.rs", ""),
            ],
            &[],
        );
        check(
            &[
                ("policies/a/src/lib.rs", "//! None."),
                ("docs/policies/a.md", ""),
            ],
            &["a/src/lib.rs: the header"],
        );
    }

    #[test]
    fn lines_that_pages_show() {
        let source = (
            "policies/testing/faulty/src/wrong.rs",
            "one\ntwo // README.md shows this line.\n",
        );
        let check = |page: &str, expected: usize| {
            let files = [source, ("README.md", page)].map(|(path, text)| File {
                path: path.into(),
                text: text.into(),
            });
            assert_eq!(wrong_lines(&files).len(), expected, "{page}");
        };
        check("source  wrong.rs:2\nand wrong.rs:2 again", 0);
        check("source  wrong.rs:2\nand wrong.rs:3 again", 1);
        // The line as gdb lists it, and other lines that begin with a number.
        check("#2 src/wrong.rs:2\n2\t    two\n", 0);
        check("#2 src/wrong.rs:2\n88\t    two\n", 1);
        check("88\tanother", 0);
        check("none", 0);
    }
}
