// SPDX-License-Identifier: GPL-2.0-only
//! Values of the language.

use baton_lang::hir::Type;
use baton_machine::{CoreSet, Cpu, Domain, Thread};

use crate::OfThread;

/// A value. The types were checked before, so that asking one for another type is a mistake of the
/// compiler's, and a panic.
#[derive(Clone, Copy)]
pub enum Value<'t> {
    /// Of a statement.
    Nothing,
    /// Also a time, and the value of an enum.
    Int(i64),
    Bool(bool),
    /// A thread, or none.
    Thread(Option<Thread<'t, OfThread>>),
    /// A core, or none.
    Core(Option<Cpu>),
    Cores(&'t CoreSet),
    Domain(Domain),
}

impl<'t> Value<'t> {
    pub fn int(self) -> i64 {
        match self {
            Self::Int(value) => value,
            _ => panic!("the value is no number"),
        }
    }

    pub fn bool(self) -> bool {
        match self {
            Self::Bool(value) => value,
            _ => panic!("the value is no condition"),
        }
    }

    pub fn thread(self) -> Option<Thread<'t, OfThread>> {
        match self {
            Self::Thread(thread) => thread,
            _ => panic!("the value is no thread"),
        }
    }

    pub fn core(self) -> Option<Cpu> {
        match self {
            Self::Core(core) => core,
            _ => panic!("the value is no core"),
        }
    }

    pub fn cores(self) -> &'t CoreSet {
        match self {
            Self::Cores(cores) => cores,
            _ => panic!("the value is no set of cores"),
        }
    }

    pub fn domain(self) -> Domain {
        match self {
            Self::Domain(domain) => domain,
            _ => panic!("the value is no domain"),
        }
    }

    /// Is a thread or a core there?
    pub fn is_there(self) -> bool {
        match self {
            Self::Thread(thread) => thread.is_some(),
            Self::Core(core) => core.is_some(),
            _ => panic!("the value is always there"),
        }
    }

    pub fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Thread(a), Self::Thread(b)) => a == b,
            (Self::Core(a), Self::Core(b)) => a == b,
            _ => panic!("the values are of types that are not compared"),
        }
    }

    /// As an attribute keeps it.
    pub fn kept(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Bool(value) => value.into(),
            Self::Core(Some(core)) => core.number().into(),
            _ => panic!("no attribute is of this type"),
        }
    }

    /// From an attribute of this type.
    pub fn of(kept: i64, kind: Type) -> Self {
        match kind {
            Type::Bool => Self::Bool(kept != 0),
            Type::Core => Self::Core(Some(Cpu::new(kept as u32))),
            _ => Self::Int(kept),
        }
    }
}
