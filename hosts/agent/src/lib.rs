// SPDX-License-Identifier: GPL-2.0-only
//! Agents: processes that schedule the tasks of an enclave, on an unmodified kernel with
//! `baton_agent.ko`.
//!
//! An [`Agent`] is the connection of a process to an enclave: messages come up, transactions go
//! down. A [`Runner`] answers them by a policy, the same source that runs in the kernel and in the
//! simulator. A [`Scheduler`] is written for agents, with one thread that decides for all CPUs, and
//! a [`PerCpu`] with a thread on each CPU.
//!
//! The model is that of ghOSt (SOSP '21). Each call of a policy becomes a message, with the
//! arguments of that call. A task's token comes with the message that hands it over. A transaction
//! names a token and a CPU. The kernel runs the task there if the token is still the task's newest,
//! and if the checks of `hosts/core` pass, as for a policy in the kernel.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod agent;
mod answer;
mod gates;
mod host;
mod inbox;
mod map;
mod post;
mod record;
mod ring;
mod runner;
mod scheduler;
mod serve;
mod session;
mod version;

pub use agent::{device_of, Agent, AttachError, Failure, Message, Requests, Shared, Wishes};
pub use host::is_in_policy;
pub use inbox::Inbox;
pub use ring::Ring;
pub use runner::{Kicks, Mode, Runner};
pub use scheduler::{schedule, Choice, Offer, Poller, Polling, Scheduler, PATIENCE};
pub use serve::{serve, PerCpu, Turn};
pub use session::{Ended, Open, RunError, Session};
pub use version::{NotUpgraded, Upgraded};
