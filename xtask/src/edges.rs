// SPDX-License-Identifier: GPL-2.0-only
//! The allowed dependencies between Baton's crates. A new edge must be entered here, where a
//! reviewer sees it.

use crate::{files::File, steps::cargo_output, Result};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

/// A crate and the Baton crates that it may depend on, tests included. [`POLICY`] stands for every
/// crate under `policies/`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("baton-abi", &[]),
    ("baton-seam", &[]),
    ("baton-message", &["baton-abi"]),
    ("baton", &["baton-message", "baton-seam"]),
    ("baton-bridge", &["baton", "baton-abi", "baton-seam"]),
    (POLICY, &["baton", "baton-machine"]),
    ("baton-lang", &[]),
    ("baton-machine", &["baton"]),
    ("baton-lsp", &["baton-lang"]),
    (
        "baton-interpreter",
        &["baton-lang", "baton-machine", "baton-message"],
    ),
    (
        "baton-programs",
        &[
            "baton-abi",
            "baton-interpreter",
            "baton-lang",
            "baton-linked",
            "baton-machine",
            "baton-native",
            "baton-sim",
        ],
    ),
    (
        "baton-turns",
        &["baton-abi", "baton-linked", "baton-native", "baton-sim"],
    ),
    (
        "baton-core",
        &["baton-abi", "baton-conformance", "baton-message"],
    ),
    (
        "baton-core-lib",
        &["baton-abi", "baton-core", "baton-message", "baton-trace"],
    ),
    ("baton-glue", &["baton-abi", "baton-bridge"]),
    (
        "baton-native-glue",
        &["baton-abi", "baton-bridge", "baton-seam"],
    ),
    (
        "baton-native",
        &[
            "baton-abi",
            "baton-core",
            "baton-native-glue",
            "baton-seam",
            "baton-trace",
        ],
    ),
    ("baton-agent", &["baton-abi", "baton-native", "baton-trace"]),
    (
        "baton-agents",
        &["baton-abi", "baton-agent", "baton-message"],
    ),
    (
        "baton-enclave",
        &[
            "baton-abi",
            "baton-agent",
            "baton-native",
            "baton-native-glue",
        ],
    ),
    ("baton-hints", &["baton-abi", "baton-message", POLICY]),
    ("baton-runtime", &["baton-hints", POLICY]),
    ("baton-conformance", &[]),
    ("baton-linked", &["baton-native", POLICY]),
    ("baton-trace", &["baton-abi"]),
    (
        "baton-sim",
        &[
            "baton",
            "baton-abi",
            "baton-agent",
            "baton-conformance",
            "baton-core",
            "baton-enclave",
            "baton-linked",
            "baton-native",
            "baton-seam",
            "baton-trace",
            POLICY,
        ],
    ),
    (
        "baton-interleave",
        &[
            "baton",
            "baton-abi",
            "baton-agent",
            "baton-agents",
            "baton-enclave",
            "baton-conformance",
            "baton-core",
            "baton-linked",
            "baton-native",
        ],
    ),
    (
        "baton-replay",
        &[
            "baton",
            "baton-abi",
            "baton-core",
            "baton-linked",
            "baton-native",
            "baton-seam",
            "baton-sim",
            "baton-trace",
        ],
    ),
    ("baton-vm", &[]),
    ("baton-control", &["baton-abi", "baton-core", "baton-trace"]),
    (
        "baton-build",
        &["baton-control", "baton-lang", "baton-native", "baton-vm"],
    ),
    ("baton-live", &["baton-control", "baton-vm"]),
    (
        "baton-bench",
        &[
            "baton-abi",
            "baton-agent",
            "baton-agents",
            "baton-build",
            "baton-control",
            "baton-native",
            "baton-runtime",
            "baton-sim",
            "baton-vm",
        ],
    ),
    (
        "baton-booted",
        &[
            "baton-abi",
            "baton-agent",
            "baton-agents",
            "baton-conformance",
            "baton-hints",
            "baton-interpreter",
            "baton-lang",
            "baton-linked",
            "baton-message",
            "baton-native",
            "baton-replay",
            "baton-runtime",
            "baton-trace",
            POLICY,
        ],
    ),
    ("baton-cli", &[ANY]),
    ("xtask", &["baton-abi", "baton-lang"]),
];

const POLICY: &str = "policies/*";
const ANY: &str = "*";

/// A Baton crate: its row in the table, and the Baton crates that it depends on.
#[derive(Debug, PartialEq, Eq)]
struct Crate {
    row: String,
    depends_on: Vec<String>,
}

/// Checks the rule, and returns the violations.
pub fn violations(root: &Path, files: &[File]) -> Result<Vec<String>> {
    let mut crates = BTreeMap::new();
    add_crates(root, &mut crates, &[])?;
    // Crates that are built for the kernel only are not members of the workspace.
    for file in files
        .iter()
        .filter(|file| file.name() == "Cargo.toml" && file.text.contains("[package]"))
    {
        if !crates.contains_key(&file.path) {
            add_crates(root, &mut crates, &["--manifest-path", &file.path])?;
        }
    }
    Ok(compare(crates.values(), ALLOWED))
}

/// Adds the crates that `cargo metadata` reports, by the path of their manifest.
fn add_crates(root: &Path, crates: &mut BTreeMap<String, Crate>, arguments: &[&str]) -> Result {
    let mut command = vec!["metadata", "--no-deps", "--format-version", "1"];
    command.extend(arguments);
    let metadata = cargo_output(root, &command)?;
    let metadata: Value = serde_json::from_slice(&metadata)
        .map_err(|e| format!("cannot read cargo metadata: {e}"))?;
    let root = root
        .canonicalize()
        .map_err(|e| format!("cannot find {}: {e}", root.display()))?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = Path::new(text(&package["manifest_path"]));
        let path = manifest
            .strip_prefix(&root)
            .unwrap_or(manifest)
            .display()
            .to_string();
        let row = if path.starts_with("policies/") {
            POLICY
        } else {
            text(&package["name"])
        }
        .to_owned();
        // Baton's crates are the dependencies given by path.
        let ours = package["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|d| d["path"].is_string());
        let row_of = |d: &Value| {
            if Path::new(text(&d["path"])).starts_with(root.join("policies")) {
                POLICY.to_owned()
            } else {
                text(&d["name"]).to_owned()
            }
        };
        let depends_on = ours.map(row_of).collect();
        crates.insert(path, Crate { row, depends_on });
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn compare<'a>(
    crates: impl Iterator<Item = &'a Crate> + Clone,
    allowed: &[(&str, &[&str])],
) -> Vec<String> {
    let mut found = Vec::new();
    for Crate { row, depends_on } in crates.clone() {
        let Some((_, allowed)) = allowed.iter().find(|(name, _)| name == row) else {
            found.push(format!(
                "crate {row} has no row in xtask/src/edges.rs: add one with what it may depend on"
            ));
            continue;
        };
        let edge_is_new = |to: &&String| !allowed.contains(&to.as_str()) && !allowed.contains(&ANY);
        found.extend(depends_on.iter().filter(edge_is_new).map(|to| {
            format!(
                "{row} must not depend on {to}: see the map in ARCHITECTURE.md and the table \
                in xtask/src/edges.rs"
            )
        }));
    }
    let stale = allowed
        .iter()
        .filter(|(name, _)| !crates.clone().any(|found| found.row == *name));
    found.extend(
        stale.map(|(name, _)| {
            format!("xtask/src/edges.rs has a row for {name}, which does not exist")
        }),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_crate(row: &str, depends_on: &[&str]) -> Crate {
        Crate {
            row: row.into(),
            depends_on: depends_on.iter().map(|&d| d.into()).collect(),
        }
    }

    #[test]
    fn each_breach_is_named_once() {
        let allowed: &[(&str, &[&str])] = &[
            ("baton", &[]),
            (POLICY, &["baton"]),
            ("baton-cli", &[ANY]),
            ("gone", &[]),
        ];
        let crates = [
            a_crate("baton", &[]),
            a_crate(POLICY, &["baton"]),
            a_crate(POLICY, &["baton", "baton-seam"]),
            a_crate("baton-cli", &["baton", "xtask"]),
            a_crate("new", &[]),
        ];
        let found = compare(crates.iter(), allowed);
        let starts = [
            "policies/* must not depend on baton-seam",
            "crate new has no row",
            "xtask/src/edges.rs has a row for gone",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
    }
}
