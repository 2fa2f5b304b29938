// SPDX-License-Identifier: GPL-2.0-only
//! The state that one version of a policy passes on to the next: its threads and cores, shared as
//! they are.

use alloc::boxed::Box;
use alloc::vec::Vec;

use baton::runqueue::{Fifo, Tree};
use baton::{Env, Error, Layout, Load, Lock, PerCpu, PerTask, Save, State, Unlike, Upgrade};

use crate::core::{Core, Guarded, Queue};
use crate::rules::Rules;
use crate::scheduler::Machine;
use crate::thread::{Attribute, Kept};

/// The meaning of the fields of [`Core`], [`Guarded`] and [`Kept`]. Raise it when one changes.
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

impl<A: State> State for Core<A> {
    const LAYOUT: Layout = Layout::of::<Self>("Core", VERSION).field("", 0, A::LAYOUT);

    fn save(&self, to: &mut Save<'_>) {
        self.guarded.lock().save(to);
        self.count.save(to);
        self.cload.save(to);
        self.is_owed_kick.save(to);
        self.owes_kicks.save(to);
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        Ok(Self {
            guarded: Lock::new(Guarded::load(from)?),
            count: State::load(from)?,
            cload: State::load(from)?,
            is_owed_kick: State::load(from)?,
            owes_kicks: State::load(from)?,
        })
    }
}

impl<A: State> State for Guarded<A> {
    const LAYOUT: Layout = Layout::of::<Self>("Guarded", VERSION).field("", 0, A::LAYOUT);

    fn save(&self, to: &mut Save<'_>) {
        to.word(self.queues.len() as u64);
        self.queues.iter().for_each(|queue| queue.save(to));
        self.attributes.save(to);
        self.current.save(to);
        self.count.save(to);
        self.cload.save(to);
        self.timer_at.save(to);
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        let queues: Result<Vec<Queue>, Unlike> =
            (0..from.count()?).map(|_| Queue::load(from)).collect();
        Ok(Self {
            queues: Box::from(queues?),
            attributes: State::load(from)?,
            current: State::load(from)?,
            count: State::load(from)?,
            cload: State::load(from)?,
            timer_at: State::load(from)?,
        })
    }
}

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

impl<A: State> State for Kept<A> {
    const LAYOUT: Layout = Layout::of::<Self>("Kept", VERSION).field("", 0, A::LAYOUT);

    fn save(&self, to: &mut Save<'_>) {
        self.attributes.save(to);
        self.home.save(to);
        self.load.save(to);
        self.left_for.save(to);
        self.nice.save(to);
        self.runtime.save(to);
    }

    fn load(from: &mut Load<'_>) -> Result<Self, Unlike> {
        Ok(Self {
            attributes: State::load(from)?,
            home: State::load(from)?,
            load: State::load(from)?,
            left_for: State::load(from)?,
            nice: State::load(from)?,
            runtime: State::load(from)?,
        })
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
