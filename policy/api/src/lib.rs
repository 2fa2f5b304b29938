// SPDX-License-Identifier: GPL-2.0-only
//! The API that scheduling policies are written against.
//!
//! A policy is a crate with one type that implements [`Scheduler`] and one line,
//! `baton::policy!(Type);`. It is `no_std`, has no unsafe code, and does not depend on the host
//! that runs it: the kernel module, the simulator or a checker.
#![doc = include_str!("../API.md")]
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod ctx;
mod env;
mod error;
pub mod runqueue;
mod saved;
mod scheduler;
mod shared;
mod state;
mod storage;
mod topology;
mod types;
pub mod weight;

pub use baton_message::{message, Message, Thread};
pub use baton_seam::Schedulable;
pub use ctx::{Ctx, Kicks, ReplyRefused, FAR_CPUS, MAX_KICKS};
pub use env::Env;
pub use error::Error;
#[doc(hidden)]
pub use saved::{Load, Save, Unlike};
pub use scheduler::{Hints, Scheduler, Upgrade};
pub use shared::{Shared, Word};
#[doc(hidden)]
pub use state::layout_of;
pub use state::{Layout, State};
pub use storage::{PerCpu, PerTask};
pub use topology::{Place, Topology};
pub use types::{Asked, Cpu, Events, Kick, KickRefused, Pick, Placement, Refusal, Task, Wake};

/// A lock of the host that protects a `T`. The host detects a lock that one CPU takes twice, and
/// locks that two CPUs take in opposite orders. Such a deadlock stops the policy instead of the
/// machine. Locks must be released in the reverse order of acquisition.
pub type Lock<T> = lock_api::Mutex<baton_seam::RawLock, T>;

/// The slice of a task for which the policy sets none, ns (the kernel's SCX_SLICE_DFL).
pub const DEFAULT_SLICE: u64 = 20_000_000;

/// Declares the type that implements [`Scheduler`] to the host that the policy is built into. Add
/// `, upgrade` if the type also implements [`Upgrade`], and `, hints` if it implements [`Hints`].
/// With both, `upgrade` comes first.
#[macro_export]
macro_rules! policy {
    ($scheduler:ty) => {
        #[doc(hidden)]
        pub type BatonPolicy = $crate::Plain<$scheduler>;
    };
    ($scheduler:ty, upgrade) => {
        #[doc(hidden)]
        pub type BatonPolicy = $crate::Upgradable<$scheduler>;
    };
    ($scheduler:ty, hints) => {
        #[doc(hidden)]
        pub type BatonPolicy = $crate::Hinted<$crate::Plain<$scheduler>>;
    };
    ($scheduler:ty, upgrade, hints) => {
        #[doc(hidden)]
        pub type BatonPolicy = $crate::Hinted<$crate::Upgradable<$scheduler>>;
    };
}

/// For hosts: a policy as `baton::policy!` declares it.
#[doc(hidden)]
pub struct Plain<S: Scheduler>(core::marker::PhantomData<S>);

/// For hosts: a policy that can be upgraded while it runs.
#[doc(hidden)]
pub struct Upgradable<S: Upgrade>(core::marker::PhantomData<S>);

/// For hosts: one of the above that also takes hints.
#[doc(hidden)]
pub struct Hinted<P>(core::marker::PhantomData<P>);
