// SPDX-License-Identifier: GPL-2.0-only
//! Saved states: a recording of a running policy begins with one, and so does one that is replayed
//! from a checkpoint. The bytes are those of the compiled policy.

use baton_lang::hir;
use baton_machine::{Layout, Load, Save, State, Unlike, Upgradable};

use crate::{Interpreted, OfCore, OfThread, PROGRAM};

/// The program whose instance this thread makes, or saves.
fn of_program<T>(ask: impl FnOnce(&hir::Policy) -> T) -> Result<T, Unlike> {
    PROGRAM.with_borrow(|program| program.as_deref().map(ask).ok_or(Unlike))
}

/// Reads the values of attributes. Each type has its own, as in the compiled policy.
fn values(kinds: Vec<hir::Type>, from: &mut Load<'_>) -> Result<Vec<i64>, Unlike> {
    let value = |kind| match kind {
        hir::Type::Bool => bool::load(from).map(i64::from),
        hir::Type::Core => baton_machine::Cpu::load(from).map(|core| core.number().into()),
        _ => i64::load(from),
    };
    kinds.into_iter().map(value).collect()
}

fn kinds(of: &[hir::Attribute]) -> Vec<hir::Type> {
    of.iter().map(|attribute| attribute.kind).collect()
}

impl State for OfCore {
    const LAYOUT: Layout = Layout::of::<Self>("OfCore", 1);

    fn save(&self, to: &mut Save<'_>) {
        self.0.iter().for_each(|value| value.save(to));
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        values(of_program(|program| kinds(&program.core))?, from).map(Self)
    }
}

impl State for OfThread {
    const LAYOUT: Layout = Layout::of::<Self>("OfThread", 1);

    fn save(&self, to: &mut Save<'_>) {
        match self.0.get() {
            Some(attributes) => attributes.iter().for_each(|it| it.save(to)),
            // It has not begun: the compiled policy has zeros.
            None => {
                let count = of_program(|program| program.thread.len()).unwrap_or(0);
                (0..count).for_each(|_| 0_i64.save(to));
            }
        }
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        let count = of_program(|program| program.thread.len())?;
        let attributes: Result<Vec<_>, Unlike> = (0..count).map(|_| State::load(from)).collect();
        Ok(Self(attributes?.into()))
    }
}

/// For replays, which begin with a state of the policy that is interpreted. Two programs are not
/// told apart, so that an interpreted policy is not upgraded to another.
impl Upgradable for Interpreted {
    const DECLARED: &'static [&'static str] = &["interpreted"];
}
