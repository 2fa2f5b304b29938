// SPDX-License-Identifier: GPL-2.0-only
//! What ARCHITECTURE.md says of unsafe code: where it is, and the invariants that it relies on.

use crate::files::File;

const PAGE: &str = "ARCHITECTURE.md";

/// The beginning and the end of the sentence that lists the places with unsafe code.
const PLACES: (&str, &str) = ("- Unsafe code is in ", " only.");

/// The head of the table of invariants.
const INVARIANTS: &str = "## Safety invariants";

/// Where a comment cites an invariant, which is the next word.
const CITATIONS: &[&str] = &["// SAFETY:", "/// # Safety"];

/// Checks that the list of places with unsafe code names all of them, and no other.
pub fn unsafe_places(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![format!("{PAGE}:1: does not exist")];
    };
    let (begin, end) = PLACES;
    let Some((sentence, _)) = page
        .text
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end))
    else {
        return vec![format!(
            "{PAGE}:1: must say \"{begin}`PATH` and ...{end}\", with each place that has unsafe \
            code"
        )];
    };
    let listed: Vec<&str> = sentence.split('`').skip(1).step_by(2).collect();
    let is_in = |path: &str, place: &str| {
        path.strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found: Vec<(&str, usize)> = files
        .iter()
        .filter(|file| file.extension() == "rs" && !is_test(&file.path))
        .filter_map(|file| Some((file.path.as_str(), first_unsafe(&file.text)?)))
        .collect();
    let unlisted = found
        .iter()
        .filter(|(path, _)| !listed.iter().any(|place| is_in(path, place)))
        .map(|(path, line)| {
            format!(
                "{path}:{line}: unsafe code in a place that {PAGE} does not list: do without it, \
                or enter the file under \"Invariants\""
            )
        });
    let stale = listed
        .iter()
        .filter(|place| !found.iter().any(|(path, _)| is_in(path, place)))
        .map(|place| {
            format!("{PAGE}:1: `{place}` has no unsafe code: take it off the list of such places")
        });
    unlisted.chain(stale).collect()
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests")
}

/// The number of the first line with unsafe code.
fn first_unsafe(text: &str) -> Option<usize> {
    let line = text.lines().position(|line| {
        let code = without_strings(line);
        let code = code.split("//").next().unwrap_or("");
        let words: Vec<&str> = code
            .split(|c: char| c.is_whitespace() || "(<".contains(c))
            .collect();
        words.windows(2).any(|pair| {
            pair[0] == "unsafe"
                && (pair[1].starts_with('{') || ["fn", "impl", "extern"].contains(&pair[1]))
        })
    })?;
    Some(line + 1)
}

/// The line without what is between its quotation marks.
fn without_strings(line: &str) -> String {
    line.replace("\\\"", "").split('"').step_by(2).collect()
}

/// Checks that each comment on safety cites an invariant of the table in ARCHITECTURE.md, and that
/// each invariant is cited.
pub fn cited_invariants(files: &[File]) -> Vec<String> {
    let Some((_, table)) = files
        .iter()
        .find(|file| file.path == PAGE)
        .and_then(|page| page.text.split_once(INVARIANTS))
    else {
        return vec![format!(
            "{PAGE}:1: has no section \"{INVARIANTS}\" with the names that comments on safety cite"
        )];
    };
    // The first two rows are the heading.
    let defined: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .skip(2)
        .collect();
    let (mut found, mut cited) = (Vec::new(), Vec::new());
    for file in files.iter().filter(|file| file.extension() == "rs") {
        for (line, name) in citations(&file.text) {
            if !defined.contains(&name) {
                found.push(format!(
                    "{}:{line}: the comment must begin with the name of a safety invariant, not \
                    with \"{name}\": the table is in {PAGE}",
                    file.path
                ));
            }
            cited.push(name);
        }
    }
    let unused = defined.iter().filter(|name| !cited.contains(name));
    found.extend(
        unused.map(|name| {
            format!("{PAGE}:1: no comment cites the safety invariant {name}: remove it")
        }),
    );
    found
}

/// The names that a file's comments on safety begin with, and their lines.
fn citations(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(rest) = CITATIONS.iter().find_map(|mark| line.strip_prefix(mark)) else {
            continue;
        };
        // The name stands after the mark, or in the next line.
        let rest = if rest.trim().is_empty() {
            let next = text.lines().nth(index + 1).unwrap_or("");
            next.trim_start().trim_start_matches('/')
        } else {
            rest
        };
        let name = rest
            .trim_start()
            .split(|c: char| !c.is_alphanumeric() && c != '-')
            .next();
        found.push((index + 1, name.unwrap_or("")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(found: &[String], expected: &[&str]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, start) in found.iter().zip(expected) {
            assert!(found.starts_with(start), "{found}");
        }
    }

    #[test]
    fn the_places_with_unsafe_code_are_those_listed() {
        let files = [
            File::of(
                PAGE,
                "- Unsafe code is in `a`, `b/src/b.rs` (and its use in\n  `b/src/lib.rs`) and \
                `gone` only. Others forbid it: `safe`.\n",
            ),
            File::of("a/src/lib.rs", "unsafe impl Send for A {}\n"),
            File::of("a-b/src/lib.rs", "\nlet a = f(unsafe { g() });\n"),
            File::of("b/src/b.rs", "pub unsafe extern \"C\" fn f() {}\n"),
            File::of("b/src/lib.rs", "unsafe fn f() {}\n"),
            File::of("b/tests/b.rs", "unsafe { f() }\n"),
            File::of(
                "safe/src/lib.rs",
                "// unsafe { f() }\n#![forbid(unsafe_code)]\n",
            ),
            File::of(
                "safe/src/a.rs",
                "if allow_unsafe {}\nf(\"unsafe { g() }\");\n",
            ),
        ];
        let found = unsafe_places(&files);
        starts(
            &found,
            &["a-b/src/lib.rs:2: ", "ARCHITECTURE.md:1: `gone` "],
        );
        starts(&unsafe_places(&[]), &["ARCHITECTURE.md:1: does not exist"]);
        starts(
            &unsafe_places(&[File::of(PAGE, "# Architecture\n")]),
            &["ARCHITECTURE.md:1: must say"],
        );
    }

    #[test]
    fn comments_on_safety_cite_what_is_defined() {
        let page = "| a | b |\n## Safety invariants\n\n| name | what holds |\n| --- | --- |\n\
            | Task-alive | it is |\n| Init-once | it is |\n| Unused | it is |\n";
        let code = [
            "// SAFETY: Task-alive, as above.",
            "    /// # Safety",
            "    /// Init-once: this.",
            "// SAFETY: as above",
            "// SAFETY:",
            "// Task-dead.",
            "/// # Safety",
            "/// Called once.",
        ];
        let found = cited_invariants(&[File::of(PAGE, page), File::of("a.rs", &code.join("\n"))]);
        let expected = [
            "a.rs:4: ",
            "a.rs:5: ",
            "a.rs:7: ",
            "ARCHITECTURE.md:1: no comment cites the safety invariant Unused",
        ];
        starts(&found, &expected);
        starts(
            &cited_invariants(&[]),
            &["ARCHITECTURE.md:1: has no section"],
        );
    }
}
