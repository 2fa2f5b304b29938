// SPDX-License-Identifier: GPL-2.0-only
//! The machine that a policy in Baton's language runs on: cores with queues of threads.
//!
//! The compiler turns a policy into an implementation of [`Rules`], which decides and touches no
//! lock, counter or token. [`Machine`] does the rest, and is a [`Scheduler`](baton::Scheduler), so
//! the policy runs in every host.
//!
//! # Locks
//!
//! Each core has one lock, which guards its queues and its attributes. No call takes a core's lock
//! while it holds another's, so there is no order of locks, and no deadlock. There is no other
//! lock: a call that moves threads between two cores holds their tokens itself ([`balance`]).
//!
//! # What other cores see
//!
//! Without the lock, other cores see only a core's load (`cload`) and its number of runnable
//! threads (`count`), which may be old ([`Seen`]). The order in which a core publishes them is
//! fixed here, once, for all policies, as the proofs rely on it:
//!
//! - A thread that arrives is counted, then its load is added, then it is put into a queue.
//! - A thread that leaves is taken out of its queue, then its load is subtracted, then its count.
//!
//! So a core that shows no thread has none that could run.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod balance;
mod core;
mod domain;
mod hints;
mod rules;
mod scheduler;
mod set;
mod state;
mod thread;

pub use crate::core::{At, Seen, Walk};
pub use balance::Balance;
pub use domain::Domain;
pub use hints::{Hinted, Reply};
pub use rules::{duration, number, Next, Order, Place, Rules};
pub use scheduler::Machine;
pub use set::CoreSet;
pub use state::{Held, Upgradable};
pub use thread::{Attribute, Thread};

/// How a hint names a thread.
pub use baton::Thread as Named;
pub use baton::{message, policy, state, Cpu, Env, Error, Plain, Wake, DEFAULT_SLICE};
pub use baton::{Layout, Load, Save, State, Unlike};
