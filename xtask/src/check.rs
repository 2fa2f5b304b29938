// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask check`: the gate.

use crate::{
    clients, edges, figures,
    files::{self, File},
    header, language, linked, pages, proofs, rules, safety, sizes,
    steps::{cargo, run_all, Step},
    Result,
};
use std::path::Path;

/// The checks, in order, the quick ones first.
const STEPS: &[Step] = &[
    ("house rules", house_rules),
    ("allowed dependencies", allowed_edges),
    ("generated headers", header::check),
    ("policies in Baton's language", language::check),
    ("examples in the docs", clients::check),
    ("list of policies for tests", linked::check),
    ("pages of policies", policy_pages),
    ("figures", figures::check),
    ("lines of policies", policy_sizes),
    ("proofs", proofs::check),
    ("formatting", formatting),
    ("clippy", clippy),
];

/// Crates that are built for the kernel's target only, and are therefore not members of the
/// workspace.
const KERNEL_CRATES: &[&str] = &[
    "hosts/kernel/core-lib/Cargo.toml",
    "hosts/kernel/glue/Cargo.toml",
];

/// `cargo xtask check`.
pub fn check(root: &Path) -> Result {
    run_all("check", STEPS, root)
}

fn house_rules(root: &Path) -> Result {
    let files = files::list(root)?;
    let mut found: Vec<String> = files.iter().flat_map(rules::of_file).collect();
    found.extend(rules::policies_forbid_unsafe(&files));
    found.extend(rules::architecture_paths(&files, |path| {
        root.join(path).exists()
    }));
    found.extend(safety::unsafe_places(&files));
    found.extend(safety::cited_invariants(&files));
    none(found, "the house rules")
}

fn allowed_edges(root: &Path) -> Result {
    let files: Vec<File> = files::list(root)?;
    none(
        edges::violations(root, &files)?,
        "the table of dependencies",
    )
}

fn policy_pages(root: &Path) -> Result {
    let files = files::list(root)?;
    let found = [pages::violations(&files), pages::wrong_lines(&files)].concat();
    none(found, "the rules for pages of policies")
}

fn policy_sizes(root: &Path) -> Result {
    none(
        sizes::violations(&files::list(root)?),
        "the bounds of policies' lines",
    )
}

fn none(found: Vec<String>, what: &str) -> Result {
    match found.len() {
        0 => Ok(()),
        count => Err(format!(
            "{}\n{count} breaches of {what}; fix the files named",
            found.join("\n")
        )),
    }
}

fn formatting(root: &Path) -> Result {
    cargo(root, &["fmt", "--all", "--check"])?;
    KERNEL_CRATES
        .iter()
        .try_for_each(|manifest| cargo(root, &["fmt", "--manifest-path", manifest, "--check"]))
}

fn clippy(root: &Path) -> Result {
    let arguments = ["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"];
    cargo(root, &arguments)
}
