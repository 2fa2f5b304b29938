// SPDX-License-Identifier: GPL-2.0-only
//! Where a process gets its cores from.

mod hints;
pub mod server;
mod socket;

use crate::pool::StartError;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Who grants cores.
#[derive(Clone, Debug)]
pub enum Arbiter {
    /// Nobody: all activations run all the time, and share the CPUs by the kernel's rules.
    None,
    /// The policy `arbiter`, through hints. Who calls [`crate::Runtime::start`] must be a task of
    /// the policy's.
    Hints,
    /// A server that moves threads between sets of CPUs ([`server`]), through its socket.
    Socket(PathBuf),
}

/// An activation's place at its arbiter. Of its own kernel thread alone.
pub(crate) trait Seat {
    /// Gives its core back, if it has one, and waits for another; or until `stop` says so, which is
    /// asked when the bell is rung. False then.
    fn wait(&mut self, bell: &OwnedFd, stop: &dyn Fn() -> bool) -> bool;

    /// Is its core to be given back? Makes no system call.
    fn must_leave(&mut self) -> bool;

    /// Sleeps with its core until the bell is rung, or there is something of `files`, or the
    /// arbiter says something, or for so long.
    fn idle(&mut self, bell: &OwnedFd, files: Option<BorrowedFd<'_>>, time: Duration);

    /// The process wants so many cores.
    fn request(&mut self, cores: u32);
}

/// What all seats of a process are made with.
pub(crate) struct Office {
    arbiter: Arbiter,
    level: u8,
    /// The activation that came first: it stays until the end, which who started the runtime need
    /// not.
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

    /// The seat of the calling thread.
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

/// Who has its core for ever.
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
    // It cannot fail: the counter is far from full, as it is emptied with each look.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Sleeps until the bell is rung or one of the others can be read, or for so long.
fn sleep(bell: &OwnedFd, others: [Option<BorrowedFd<'_>>; 2], time: Option<Duration>) {
    let time = time.and_then(|time| time.try_into().ok());
    let mut files = [(); 3].map(|()| PollFd::new(bell, PollFlags::IN));
    let mut count = 1;
    for other in others.into_iter().flatten() {
        files[count] = PollFd::from_borrowed_fd(other, PollFlags::IN);
        count += 1;
    }
    // Whatever woke it, it looks.
    let _ = poll(&mut files[..count], time.as_ref());
    if files[0].revents().contains(PollFlags::IN) {
        let _ = rustix::io::read(bell, &mut [0; 8]);
    }
}
