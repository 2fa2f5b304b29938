// SPDX-License-Identifier: GPL-2.0-only
//! The versions of kernel and compilers that were tested, beside those that are here.

use std::process::Command;

/// The file that the scripts write.
const TESTED: &str = include_str!("../tested");
/// Prints the versions that are here, in the same form.
const VERSIONS: &str = include_str!("../versions.sh");

/// A line about the versions that differ from the tested ones; `None` if none does. What cannot be
/// found here is not compared.
pub fn note() -> Option<String> {
    let output = Command::new("sh").args(["-c", VERSIONS]).output().ok()?;
    note_about(TESTED, &String::from_utf8_lossy(&output.stdout))
}

fn note_about(tested: &str, here: &str) -> Option<String> {
    let differing: Vec<String> = versions(here)
        .filter_map(|(name, here)| {
            let (_, tested) = versions(tested).find(|(tested, _)| *tested == name)?;
            (tested != here).then(|| format!("{name} {here} (tested: {tested})"))
        })
        .collect();
    if differing.is_empty() {
        None
    } else {
        Some(format!(
            "note: these versions are not the tested ones: {}",
            differing.join(", ")
        ))
    }
}

fn versions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_noted() {
        let tested = "# kernel 0\nkernel 7.2.12\nrustc 1.97.1\nclang 21.1.8\n";
        let check = |here: &str, expected: Option<&str>| {
            let note = note_about(tested, here);
            let listed = note
                .as_deref()
                .and_then(|note| note.rsplit("ones: ").next());
            assert_eq!(listed, expected, "{here}");
        };
        check(tested, None);
        check("rustc 1.97.1\nclang 21.1.8\n", None);
        check("", None);
        check(
            "kernel 7.3\nrustc 1.97.1\n",
            Some("kernel 7.3 (tested: 7.2.12)"),
        );
        check(
            "rustc 1.98.0\nclang 22.1.0\n",
            Some("rustc 1.98.0 (tested: 1.97.1), clang 22.1.0 (tested: 21.1.8)"),
        );
    }

    #[test]
    fn the_file_names_all_three() {
        let names: Vec<_> = versions(TESTED).map(|(name, _)| name).collect();
        assert_eq!(names, ["kernel", "rustc", "clang"]);
    }
}
