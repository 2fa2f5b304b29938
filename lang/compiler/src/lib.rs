// SPDX-License-Identifier: GPL-2.0-only
//! The compiler of Baton's language (`docs/language`): from a policy's text to the source of a
//! policy in Rust, and to what is proved of it.
//!
//! A policy is parsed (`parser`, into the tree of `ast`), and checked (`check`, into `hir`, with
//! types and phases). `rust` writes a crate from that, and `obligations` what must be proved of it.

pub mod ast;
mod check;
pub mod diagnostic;
mod format;
pub mod hir;
mod hover;
pub mod obligations;
pub mod parser;
pub mod prover;
mod rust;
mod token;
mod walk;

pub use diagnostic::Diagnostic;
pub use format::format;
pub use hover::hover;
pub use rust::crate_of;

/// Reads and checks a policy. The diagnostics are in the order of the source. What cannot be read is
/// reported first: only what can is checked.
pub fn compile(source: &str) -> Result<hir::Policy, Vec<Diagnostic>> {
    let (file, diagnostics) = parser::parse(source);
    let checked = match file {
        Some(file) if diagnostics.is_empty() => check::check(&file),
        _ => Err(diagnostics),
    };
    checked.map_err(|mut diagnostics| {
        diagnostics.sort_by_key(|diagnostic| diagnostic.span.begin);
        diagnostics
    })
}
