// SPDX-License-Identifier: GPL-2.0-only
//! What an agent does from attaching to its enclave until it ends.

use std::{fmt, io};

use baton_native::Policy;

use crate::agent::Failure;
use crate::version::{NotUpgraded, Upgraded};

/// A session: the time from attaching to an enclave until the agent or the enclave ends it.
pub trait Session: Send + Sync {
    /// Answers messages until the enclave or [`Session::stop`] ends that.
    fn run(&self) -> Result<Ended, RunError>;

    /// Ends the session, and so makes [`Session::run`] return soon. Any thread.
    fn stop(&self);

    /// Replaces the policy by another version of it, which gets its state and has the same options.
    /// `open` finds that version. Any thread but an agent of a CPU.
    fn upgrade(&self, _open: &Open<'_>) -> Result<Upgraded, NotUpgraded> {
        let why = "a scheduler that is written for agents cannot be replaced while it runs";
        Err(NotUpgraded(why.into()))
    }
}

/// Opens a version of a policy. The error says why it cannot be opened.
pub type Open<'a> = dyn Fn() -> Result<Policy, String> + 'a;

/// How a session ended.
#[derive(Debug)]
pub enum Ended {
    /// The enclave no longer asks this agent, or [`Session::stop`] was called.
    Stopped,
    /// The policy failed, which was reported to the enclave.
    Fault(Failure),
    /// This many messages found no room, so the agent no longer knows its tasks. The session has
    /// ended in good order; a new one begins with all tasks of the enclave.
    Lost(u64),
}

/// Why a session could not begin or go on.
#[derive(Debug)]
pub enum RunError {
    /// The policy or scheduler could not be made: its own message.
    Policy(String),
    /// A thread could not be started, or bound to its CPU.
    Thread(io::Error),
    /// The recording could not be written.
    Recording(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(why) => write!(f, "the policy cannot be created: {why}"),
            Self::Thread(why) => write!(f, "an agent's thread cannot be bound to its CPU: {why}"),
            Self::Recording(why) => write!(f, "the recording cannot be written: {why}"),
        }
    }
}

impl std::error::Error for RunError {}
