// SPDX-License-Identifier: GPL-2.0-only
//! The state that one version of a policy passes on to the next: its threads and cores, shared as
//! they are.

use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

use baton::runqueue::{Fifo, Tree};
use baton::{
    Env, Error, Layout, Load, Lock, PerCpu, PerTask, Save, Shared, State, Unlike, Upgrade,
};

use crate::core::{Core, Guarded, Queue};
use crate::rules::Rules;
use crate::scheduler::Machine;
use crate::thread::{Attribute, Kept};

/// The version of [`Core`], [`Guarded`] and [`Kept`]. Raise it if the meaning of a field changes.
const VERSION: u32 = 1;

/// A policy whose versions can replace each other while it runs.
pub trait Upgradable: Rules<Thread: State, Core: State> + 'static {
    /// The types of the attributes, the values of enums, and the queues with their orders. Versions
    /// that share a state must declare the same.
    const DECLARED: &'static [&'static str];
}

/// What two versions share. They must have the same attributes and queues; parameters, functions
/// and handlers may differ.
pub struct Held<R: Rules> {
    pub(crate) cores: PerCpu<Core<R::Core>>,
    pub(crate) threads: PerTask<Kept<R::Thread>>,
}

impl<R: Upgradable> State for Held<R> {
    const LAYOUT: Layout = {
        let mut layout = Layout::of::<Self>("attributes and queues", VERSION)
            .field("cores", 0, Core::<R::Core>::LAYOUT)
            .field("threads", 0, Kept::<R::Thread>::LAYOUT);
        let mut number = 0;
        while number < R::DECLARED.len() {
            layout = layout.field(R::DECLARED[number], number, Queue::LAYOUT);
            number += 1;
        }
        layout
    };

    fn save(&self, to: &mut Save<'_>) {
        self.cores.save(to);
        self.threads.save(to);
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        Ok(Self {
            cores: State::load(from)?,
            threads: State::load(from)?,
        })
    }
}

impl<R: Upgradable> Upgrade for Machine<R> {
    type State = Held<R>;
    type Older = Held<R>;

    fn reregister_prepare(&self) -> Held<R> {
        Held {
            cores: self.cores.clone(),
            threads: self.threads.clone(),
        }
    }

    fn reregister_init(env: &Env<'_>, state: Held<R>) -> Result<Self, Error> {
        Ok(Self::with(env, R::new(env)?, state))
    }
}

/// As `baton::state!`, for a structure with the attributes `A` of a thread or core.
macro_rules! state {
    ($type:ident { $($field:ident: $of:ty),* $(,)? }) => {
        impl<A: State> State for $type<A> {
            const LAYOUT: Layout = Layout::of::<Self>(stringify!($type), VERSION)
                $(.field(stringify!($field), offset_of!($type<A>, $field), <$of as State>::LAYOUT))*;

            fn save(&self, to: &mut Save<'_>) {
                $(State::save(&self.$field, to);)*
            }

            fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
                Ok(Self { $($field: <$of as State>::load(from)?),* })
            }
        }
    };
}

state!(Core {
    guarded: Lock<Guarded<A>>,
    count: Shared<i64>,
    cload: Shared<i64>,
    is_owed_kick: Shared<bool>,
    owes_kicks: Shared<bool>,
    balanced: Shared<u32>,
});
state!(Guarded {
    queues: Vec<Queue>,
    attributes: A,
    current: Option<u32>,
    count: i64,
    cload: i64,
    timer_at: u64,
});
state!(Kept {
    attributes: A,
    home: AtomicU32,
    load: AtomicI64,
    left_for: AtomicU32,
    nice: AtomicI32,
    runtime: AtomicU64,
});

impl State for Queue {
    const LAYOUT: Layout = Layout::of::<Self>("Queue", VERSION)
        .field("", 0, Fifo::LAYOUT)
        .field("", 0, Tree::LAYOUT);

    fn save(&self, to: &mut Save<'_>) {
        match self {
            Self::Arrival(queue) => {
                to.word(0);
                queue.save(to);
            }
            Self::Key(queue) => {
                to.word(1);
                queue.save(to);
            }
        }
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        match from.word()? {
            0 => State::load(from).map(Self::Arrival),
            1 => State::load(from).map(Self::Key),
            _ => Err(Unlike),
        }
    }
}

impl State for Attribute {
    const LAYOUT: Layout = i64::LAYOUT;

    fn save(&self, to: &mut Save<'_>) {
        self.get().save(to);
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        let attribute = Self::default();
        attribute.set(State::load(from)?);
        Ok(attribute)
    }
}
