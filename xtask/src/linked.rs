// SPDX-License-Identifier: GPL-2.0-only
//! Writes the list of `tests/linked`: the policies in Rust that this tree contains, from the
//! manifests of `policies/*` and `policies/testing/*`. The tests of user-space hosts run all of
//! them, so a new policy is tested without an entry anywhere.
//!
//! A manifest may describe its policy for these tests:
//!
//! ```toml
//! [package.metadata.baton]
//! sound = false                     # it fails on purpose; true if absent
//! excludes = ["work-conservation"]  # properties of `baton check` that its rules do not promise
//! replies = [1, 2]                  # tags of the replies that `baton check` must see
//! next = "relay-v2"                 # the version that replaces it; itself if absent
//! ```

use crate::{steps::cargo_output, Result};
use serde_json::Value;
use std::{fmt::Write, fs, path::Path};

const MANIFEST: &str = "tests/linked/Cargo.toml";
const LIST: &str = "tests/linked/src/list.rs";

/// A policy in Rust.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Policy {
    /// Name of the package, such as `relay-v1`.
    package: String,
    /// Its folder.
    folder: String,
    sound: bool,
    excludes: Vec<String>,
    replies: Vec<u64>,
    next: Option<String>,
    /// It is written in Baton's language: `NAME.baton` is in its folder.
    is_in_language: bool,
}

impl Policy {
    /// The name as the kernel and Rust have it.
    fn name(&self) -> String {
        self.package.replace('-', "_")
    }
}

/// `cargo xtask policies`.
pub fn write(root: &Path) -> Result {
    for (path, text) in generate(root)? {
        fs::write(root.join(path), text).map_err(|e| format!("cannot write {path}: {e}"))?;
        println!("{path} written");
    }
    Ok(())
}

/// Fails when the list in the tree differs from the generated one.
pub fn check(root: &Path) -> Result {
    for (path, text) in generate(root)? {
        if fs::read_to_string(root.join(path)).ok().as_deref() != Some(&*text) {
            return Err(format!(
                "{path} does not list the policies of this tree: run `cargo xtask policies`"
            ));
        }
    }
    Ok(())
}

fn generate(root: &Path) -> Result<[(&'static str, String); 2]> {
    let policies = policies(root)?;
    Ok([(MANIFEST, manifest(&policies)), (LIST, list(&policies))])
}

/// The policies of the tree, by name.
fn policies(root: &Path) -> Result<Vec<Policy>> {
    let metadata = cargo_output(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_slice(&metadata)
        .map_err(|e| format!("cannot read cargo metadata: {e}"))?;
    let root = root
        .canonicalize()
        .map_err(|e| format!("cannot find {}: {e}", root.display()))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut found: Vec<_> = packages
        .filter_map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            let folder = manifest.strip_prefix(&root).ok()?.parent()?;
            folder.starts_with("policies").then(|| {
                let policy = Policy {
                    package: package["name"].as_str().unwrap_or_default().to_owned(),
                    folder: folder.display().to_string(),
                    ..described(&package["metadata"]["baton"])
                };
                let source = root.join(folder).join(format!("{}.baton", policy.name()));
                Policy {
                    is_in_language: source.exists(),
                    ..policy
                }
            })
        })
        .collect();
    found.sort();
    Ok(found)
}

/// What a manifest says of its policy.
fn described(metadata: &Value) -> Policy {
    let items = |key: &str| metadata[key].as_array().into_iter().flatten();
    Policy {
        package: String::new(),
        folder: String::new(),
        sound: metadata["sound"].as_bool().unwrap_or(true),
        excludes: items("excludes")
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        replies: items("replies").filter_map(Value::as_u64).collect(),
        next: metadata["next"].as_str().map(str::to_owned),
        is_in_language: false,
    }
}

fn manifest(policies: &[Policy]) -> String {
    let mut text = String::from(
        r#"# SPDX-License-Identifier: GPL-2.0-only
# Written by `cargo xtask policies`.
[package]
name = "baton-linked"
description = "The policies in Rust that this tree contains, linked into tests"
version.workspace = true
edition.workspace = true
license.workspace = true
publish.workspace = true

[dependencies]
# Policies in user space.
baton-native = { path = "../../hosts/native" }
"#,
    );
    for Policy {
        package, folder, ..
    } in policies
    {
        let _ = writeln!(text, "{package} = {{ path = \"../../{folder}\" }}");
    }
    text + "\n[lints]\nworkspace = true\n"
}

fn list(policies: &[Policy]) -> String {
    let mut text = String::from(
        "// SPDX-License-Identifier: GPL-2.0-only\n\
         // Written by `cargo xtask policies`.\n\n\
         use crate::{linked, source, Linked};\n\n\
         /// Calls a macro with the name of each sound policy.\n\
         #[macro_export]\n\
         macro_rules! each_sound_policy {\n    ($call:ident) => {\n",
    );
    for policy in policies.iter().filter(|policy| policy.sound) {
        let _ = writeln!(text, "        $call!({});", policy.name());
    }
    text += "    };\n}\n\n/// All policies, by name.\npub const POLICIES: &[Linked] = &[\n";
    for policy in policies {
        let next = policy.next.as_ref().unwrap_or(&policy.package);
        let source = if policy.is_in_language {
            let folder = policy.folder.trim_start_matches("policies/");
            format!("source!(\"{folder}/{}\")", policy.name())
        } else {
            "None".to_owned()
        };
        let _ = writeln!(
            text,
            "    Linked {{\n        name: \"{}\",\n        sound: {},\n        excludes: &{:?},\n\
             \x20       replies: &{:?},\n        next: {},\n        policy: {},\n        source: {source},\n    }},",
            policy.name(),
            policy.sound,
            policy.excludes,
            policy.replies,
            next.replace('-', "_"),
            policy.name()
        );
    }
    text += "];\n\n";
    for policy in policies {
        let _ = writeln!(text, "linked!({});", policy.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_describes_its_policy() {
        let json = r#"{ "sound": false, "excludes": ["panic"], "replies": [1, 2], "next": "b-2" }"#;
        let policy = described(&serde_json::from_str(json).unwrap());
        assert!(!policy.sound);
        assert_eq!(policy.excludes, ["panic"]);
        assert_eq!(policy.replies, [1, 2]);
        assert_eq!(policy.next.as_deref(), Some("b-2"));
        let nothing = described(&Value::Null);
        assert!(nothing.sound && nothing.excludes.is_empty() && nothing.next.is_none());
    }

    #[test]
    fn a_policy_is_listed_under_its_name() {
        let policies = [Policy {
            package: "a-b".into(),
            folder: "policies/a-b".into(),
            ..described(&Value::Null)
        }];
        assert!(manifest(&policies).contains("a-b = { path = \"../../policies/a-b\" }\n"));
        let list = list(&policies);
        assert!(list.contains("        $call!(a_b);\n"), "{list}");
        assert!(list.contains("        next: a_b,\n"), "{list}");
        assert!(list.contains("        source: None,\n"), "{list}");
        assert!(list.ends_with("];\n\nlinked!(a_b);\n"), "{list}");
    }
}
