// SPDX-License-Identifier: GPL-2.0-only
//! Arbiters: where a process gets its cores from.

mod hints;
pub mod server;
mod socket;

use crate::pool::StartError;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// What grants cores.
#[derive(Clone, Debug)]
pub enum Arbiter {
    /// No arbiter: all activations run all the time, and share the CPUs by the kernel's rules.
    None,
    /// The policy `arbiter`, through hints. The caller of [`crate::Runtime::start`] must be a task
    /// of that policy.
    Hints,
    /// A server that moves threads between sets of CPUs ([`server`]), through its socket.
    Socket(PathBuf),
}

/// An activation's connection to its arbiter. Used only by its own kernel thread.
pub(crate) trait Seat {
    /// Gives its core back, if it has one, and waits for another. `stop` is called when the bell
    /// rings; if it returns true, the wait ends and the result is false.
    fn wait(&mut self, bell: &OwnedFd, stop: &dyn Fn() -> bool) -> bool;

    /// Must it give its core back? Makes no system call.
    fn must_leave(&mut self) -> bool;

    /// Sleeps with its core until the bell rings, one of `files` is ready, the arbiter sends a
    /// message, or `time` is over.
    fn idle(&mut self, bell: &OwnedFd, files: Option<BorrowedFd<'_>>, time: Duration);

    /// Requests this many cores for the process.
    fn request(&mut self, cores: u32);
}

/// Data from which all seats of a process are made.
pub(crate) struct Office {
    arbiter: Arbiter,
    level: u8,
    /// Thread id of the activation that came first. It stays until the end, which the thread that
    /// started the runtime need not do.
    leader: OnceLock<u32>,
    line: Option<socket::Line>,
}

impl Office {
    pub fn open(arbiter: &Arbiter, level: u8, bells: &[OwnedFd]) -> Result<Self, StartError> {
        if matches!(arbiter, Arbiter::Hints) && bells.len() > arbiter::MAX_ACTIVATIONS {
            return Err(StartError::Arbiter(format!(
                "{} activations are more than it takes of a process; ask for {} cores at most \
                 (most)",
                bells.len(),
                arbiter::MAX_ACTIVATIONS
            )));
        }
        let line = match arbiter {
            Arbiter::Socket(path) => Some(socket::Line::open(path, level, bells)?),
            _ => None,
        };
        Ok(Self {
            arbiter: arbiter.clone(),
            level,
            leader: OnceLock::new(),
            line,
        })
    }

    /// Creates the seat of the calling thread.
    pub fn seat(&self, index: usize) -> Result<Box<dyn Seat + '_>, StartError> {
        Ok(match (&self.arbiter, &self.line) {
            (Arbiter::Hints, _) => {
                let leader = self
                    .leader
                    .get_or_init(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
                Box::new(hints::OfHints::open(*leader, self.level)?)
            }
            (_, Some(line)) => Box::new(line.seat(index)),
            _ => Box::new(Own),
        })
    }
}

/// The seat of an activation that always has its core.
struct Own;

impl Seat for Own {
    fn wait(&mut self, _: &OwnedFd, stop: &dyn Fn() -> bool) -> bool {
        !stop()
    }

    fn must_leave(&mut self) -> bool {
        false
    }

    fn idle(&mut self, bell: &OwnedFd, files: Option<BorrowedFd<'_>>, time: Duration) {
        sleep(bell, [files, None], Some(time));
    }

    fn request(&mut self, _: u32) {}
}

/// Rings an activation's bell.
pub(crate) fn ring(bell: &OwnedFd) {
    // It cannot fail: the counter is far from full, as each check empties it.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Sleeps until the bell rings, one of the others is readable, or `time` is over.
fn sleep(bell: &OwnedFd, others: [Option<BorrowedFd<'_>>; 2], time: Option<Duration>) {
    let time = time.and_then(|time| time.try_into().ok());
    let mut files = [(); 3].map(|()| PollFd::new(bell, PollFlags::IN));
    let mut count = 1;
    for other in others.into_iter().flatten() {
        files[count] = PollFd::from_borrowed_fd(other, PollFlags::IN);
        count += 1;
    }
    // The caller checks, whatever the cause of the wakeup.
    let _ = poll(&mut files[..count], time.as_ref());
    if files[0].revents().contains(PollFlags::IN) {
        let _ = rustix::io::read(bell, &mut [0; 8]);
    }
}
