// SPDX-License-Identifier: GPL-2.0-only
//! The policies in Rust that this tree contains, for the tests of user-space hosts.
//!
//! `cargo xtask policies` writes the list from the manifests under `policies/`, where each policy
//! describes itself under `[package.metadata.baton]`.
#![forbid(unsafe_code)]

mod list;

use baton_native::Policy;

pub use list::*;

/// A policy, and what tests may expect of it.
#[derive(Clone, Copy, Debug)]
pub struct Linked {
    /// Its name, as the kernel has it.
    pub name: &'static str,
    /// It does not fail on purpose.
    pub sound: bool,
    /// Names of the properties of `baton check` that its rules do not promise.
    pub excludes: &'static [&'static str],
    /// Tags of the replies that it sends.
    pub replies: &'static [u32],
    /// The version that replaces it; itself if there is no other.
    pub next: fn() -> Policy,
    /// The policy.
    pub policy: fn() -> Policy,
    /// Its text, if it is written in Baton's language.
    pub source: Option<&'static str>,
}

/// The policies that do not fail on purpose.
pub fn sound() -> Vec<Policy> {
    let sound = POLICIES.iter().filter(|linked| linked.sound);
    sound.map(|linked| (linked.policy)()).collect()
}

/// The entry of a policy in the list.
///
/// # Panics
/// If the tree has no policy of this name.
pub fn find(name: &str) -> &'static Linked {
    let found = POLICIES.iter().find(|linked| linked.name == name);
    found.unwrap_or_else(|| panic!("the tree has no policy {name} in Rust"))
}

/// A function with the name of a policy, which returns it.
macro_rules! linked {
    ($name:ident) => {
        #[doc = concat!("The policy `", stringify!($name), "`.")]
        pub fn $name() -> baton_native::Policy {
            baton_native::Policy::linked(baton_native::module!(::$name::BatonPolicy))
        }
    };
}
use linked;

/// The text of a policy in Baton's language, by its path under `policies/`.
macro_rules! source {
    ($path:literal) => {
        Some(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../policies/",
            $path,
            ".baton"
        )))
    };
}
use source;
