// SPDX-License-Identifier: GPL-2.0-only
//! Random programs in Baton's language, each as text and compiled: `build/generate.rs` writes them.
#![forbid(unsafe_code)]

use baton_native::Policy;

/// A random program.
pub struct Program {
    /// It is always the same program of this seed.
    pub seed: u64,
    pub text: &'static str,
    /// What the compiler makes of it.
    pub compiled: Policy,
}

/// A policy whose turns end by a timer.
pub const TIMER: Program = Program {
    seed: 0,
    text: include_str!("timer.baton"),
    compiled: Policy::linked(baton_native::module!(timer::BatonPolicy)),
};

include!(concat!(env!("OUT_DIR"), "/programs.rs"));
