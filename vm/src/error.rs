// SPDX-License-Identifier: GPL-2.0-only
use crate::kernel_log::excerpt;
use crate::Outcome;

/// How many lines of the kernel's log an error shows.
const LOG_TAIL: usize = 25;

/// An error of a guest, classified by its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for something that cannot be: a file that does not exist, a malformed
    /// topology.
    #[error("{0}")]
    User(String),
    /// This machine lacks something: QEMU, the kernel, a tool, memory.
    #[error("{0}")]
    Environment(String),
    /// The guest ended without having reported an exit code, usually by a kernel panic.
    #[error(
        "the guest died before its command had ended ({how}); its kernel log:\n{}",
        excerpt(log, LOG_TAIL)
    )]
    Died {
        /// What is known about the end of QEMU.
        how: String,
        /// The guest's kernel log.
        log: String,
    },
    /// The guest was stopped because its time was over.
    #[error(
        "the guest was stopped after {seconds} s ({state}); its kernel log:\n{}",
        excerpt(log, LOG_TAIL)
    )]
    TimedOut {
        /// The timeout, in seconds.
        seconds: u64,
        /// Whether the command had ended by then, and what the CPUs did.
        state: String,
        /// A CPU did not return from a module, or had interrupts off for good.
        is_stuck: bool,
        /// The guest's kernel log. If a CPU was stuck, its last lines show where.
        log: String,
    },
    /// The command ended, but the guest's kernel complained meanwhile. The outcome is complete.
    #[error("the guest's kernel complained:\n  {}", complaints.join("\n  "))]
    Complaints {
        /// The lines found by [`crate::kernel_log::complaints`].
        complaints: Vec<String>,
        /// The results of the run.
        outcome: Box<Outcome>,
    },
    /// A system call of this crate failed.
    #[error("{doing}: {source}")]
    Io {
        /// The operation, and its file.
        doing: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Adds the failed operation to a system error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: Into<std::io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|e| Error::Io {
            doing: what(),
            source: e.into(),
        })
    }
}
