// SPDX-License-Identifier: GPL-2.0-only
//! Cores from the policy `arbiter`.

use super::{sleep, Seat};
use crate::pool::StartError;
use arbiter::{Hint, Reply, MAX_PROCESSES};
use baton_hints::{NotSent, Queue, Thread};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Entries of a queue: an activation gets one or two messages at a time.
const ENTRIES: u32 = 16;

pub struct OfHints {
    queue: Queue<Hint, Reply>,
    level: u8,
    /// It waits for its first core.
    is_new: bool,
    is_granted: bool,
    must_leave: bool,
    /// The policy refused one of its messages.
    is_refused: bool,
}

impl OfHints {
    /// A seat for the calling thread.
    pub fn open(leader: u32, level: u8) -> Result<Self, StartError> {
        let queue =
            Queue::open("arbiter", ENTRIES).map_err(|why| StartError::Arbiter(why.to_string()))?;
        let mut seat = Self {
            queue,
            level,
            is_new: true,
            is_granted: false,
            must_leave: false,
            is_refused: false,
        };
        let join = Hint::Join {
            leader: Thread::of_id(leader),
        };
        seat.queue
            .send_now(&join)
            .map_err(|why| StartError::Arbiter(why.to_string()))?;
        // The policy's refusal arrives before the call returns.
        seat.listen();
        if seat.is_refused {
            return Err(StartError::Arbiter(format!(
                "it takes no more runtimes than {MAX_PROCESSES} at a time; end another one"
            )));
        }
        Ok(seat)
    }

    fn say(&mut self, hint: &Hint) {
        if self.queue.send(hint) == Err(NotSent::Full) {
            // By a system call, which delivers it after the hints in the ring. A closed queue needs
            // no more messages.
            let _ = self.queue.send_now(hint);
        }
    }

    fn listen(&mut self) {
        while let Some(reply) = self.queue.receive() {
            match reply {
                Reply::Granted { .. } => (self.is_granted, self.must_leave) = (true, false),
                Reply::Reclaim { .. } => self.must_leave = true,
                // After it has joined, this means that the first activation has ended, as all do.
                Reply::Refused { .. } => self.is_refused = true,
            }
        }
    }
}

impl Seat for OfHints {
    fn wait(&mut self, bell: &OwnedFd, stop: &dyn Fn() -> bool) -> bool {
        if !std::mem::take(&mut self.is_new) {
            self.is_granted = false;
            self.say(&Hint::Park {});
        }
        loop {
            self.listen();
            // The core may already have to be given back.
            if self.is_granted {
                return !stop();
            }
            // Without a policy all activations run, as threads of the present scheduler.
            if self.queue.end().is_some() {
                self.must_leave = false;
                return !stop();
            }
            if stop() {
                return false;
            }
            sleep(bell, [Some(self.queue.as_fd()), None], None);
        }
    }

    fn must_leave(&mut self) -> bool {
        self.listen();
        self.must_leave
    }

    fn idle(&mut self, bell: &OwnedFd, files: Option<BorrowedFd<'_>>, time: Duration) {
        let own = if self.queue.end().is_none() {
            Some(self.queue.as_fd())
        } else {
            None
        };
        sleep(bell, [files, own], Some(time));
    }

    fn request(&mut self, cores: u32) {
        // At once: a hint of a computing thread would be read at its next tick only.
        let _ = self.queue.send_now(&Hint::Request {
            level: self.level,
            cores,
        });
    }
}
