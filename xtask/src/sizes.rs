// SPDX-License-Identifier: GPL-2.0-only
//! The length of policies, beside that of the paper's schedulers that they follow.
//!
//! Lines of code are the lines of a policy's sources that are neither empty nor only a comment,
//! without modules of tests. All lines are counted, too, as the paper does not state which lines
//! its numbers exclude.

use crate::{files::File, pages::FOR_TESTS};
use std::collections::BTreeMap;

/// Lines of code of Enoki's schedulers (EuroSys '24, section 4.2), by Baton's directory. The other
/// policies have no counterpart.
const PAPER: &[(&str, usize)] = &[
    ("arbiter", 579),
    ("locality", 203),
    ("shinjuku", 285),
    ("wfq", 646),
];

/// The page with a table of these policies: each row has a policy, its lines of code, all lines,
/// and the paper's.
const PAGE: &str = "docs/benchmarks.md";

/// Lines of one policy.
#[derive(Debug, Default, PartialEq)]
struct Size {
    code: usize,
    all: usize,
}

/// Prints the lines of each policy, and returns the differences from the table.
///
/// The table has only policies with a counterpart, so a new policy needs no row.
pub fn violations(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    let page = files
        .iter()
        .find(|file| file.path == PAGE)
        .map_or("", |file| file.text.as_str());
    for (policy, Size { code, all }) in sizes(files) {
        let paper = PAPER
            .iter()
            .find(|(name, _)| *name == policy)
            .map(|(_, lines)| *lines);
        let Some(paper) = paper else {
            println!("   {policy}: {code} lines of code of {all}");
            continue;
        };
        println!("   {policy}: {code} lines of code of {all}; the paper's: {paper}");
        let row = format!(
            "| {} | {code} | {all} | {paper} |",
            policy.replace('-', "_")
        );
        if !page.lines().any(|line| line == row) {
            found.push(format!("{PAGE}: the table of lines has no row `{row}`"));
        }
    }
    found
}

/// Counts the lines by directory.
fn sizes(files: &[File]) -> BTreeMap<&str, Size> {
    let mut sizes: BTreeMap<&str, Size> = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| ["rs", "c"].contains(&file.extension()))
    {
        let Some((policy, _)) = file
            .path
            .strip_prefix("policies/")
            .and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        if policy != FOR_TESTS {
            let size = sizes.entry(policy).or_default();
            size.code += code(&file.text);
            size.all += file.text.lines().count();
        }
    }
    sizes
}

fn code(text: &str) -> usize {
    let mut within_comment = false;
    let is_code = |line: &&str| {
        let line = line.trim();
        let comment = within_comment || line.starts_with("/*");
        within_comment = comment && !line.ends_with("*/");
        !comment && !line.is_empty() && !line.starts_with("//")
    };
    without_tests(text).into_iter().filter(is_code).count()
}

/// The lines outside each `mod` that directly follows a `#[cfg(test)]`, up to its closing brace at
/// the same indentation: all sources are formatted.
fn without_tests(text: &str) -> Vec<&str> {
    let mut lines = text.lines().peekable();
    let mut left = Vec::new();
    while let Some(line) = lines.next() {
        let place = line
            .strip_suffix("#[cfg(test)]")
            .filter(|place| place.trim().is_empty());
        let module =
            place.and_then(|_| lines.next_if(|line| line.trim_start().starts_with("mod ")));
        match place.zip(module) {
            Some((place, module)) if module.ends_with('{') => {
                let end = format!("{place}}}");
                lines.by_ref().find(|line| *line == end);
            }
            Some(_) => {}
            None => left.push(line),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code() {
        let check = |text: &str, expected| assert_eq!(code(text), expected, "{text}");
        check("// a\n\n//! b\nuse c; // d\n    /// e\n    f();\n", 2);
        check(
            "/*\n * a\n */\nint b; /* c */\n\t/* d\n\t   e */\n#include <f>\n",
            2,
        );
        check("fn a() {}\n#[cfg(test)]\nmod tests {}\n", 1);
        check("mod a;\nmod b;\n#[cfg(test)]\nuse c;\nd;\n", 5);
        check("#[cfg(test)]\nmod tests;\n\nb;\n", 1);
        check(
            "a;\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\n\nc;\nd;\n",
            3,
        );
        check(
            "mod a {\n    #[cfg(test)]\n    mod tests {\n        b;\n    }\n    c;\n}\n",
            3,
        );
    }

    #[test]
    fn what_the_table_does_not_say() {
        let check = |page: &str, lines: usize, expected: &[&str]| {
            let files = [
                File::of(PAGE, page),
                File::of("policies/locality/src/lib.rs", &"a;\n".repeat(lines)),
                File::of("policies/locality/src/more.rs", "// a\nb;\n"),
                File::of("policies/testing/faulty/src/lib.rs", "a;\n"),
                File::of("policies/new/src/lib.rs", "a;\n"),
            ];
            let found = violations(&files);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(
                found
                    .iter()
                    .zip(expected)
                    .all(|(found, start)| found.starts_with(start)),
                "{found:?}"
            );
        };
        check("| locality | 203 | 204 | 203 |\n", 202, &[]);
        check(
            "| locality | 203 | 204 | 203 |\n",
            201,
            &["docs/benchmarks.md: the table"],
        );
    }
}
