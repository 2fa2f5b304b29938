// SPDX-License-Identifier: GPL-2.0-only
//! Cores of the policy `arbiter`.

use super::{sleep, Seat};
use crate::pool::StartError;
use arbiter::{Hint, Reply, MAX_PROCESSES};
use baton_hints::{NotSent, Queue, Thread};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Entries of a queue: an activation is told one thing or two at a time.
const ENTRIES: u32 = 16;

pub struct OfHints {
    queue: Queue<Hint, Reply>,
    level: u8,
    /// It waits for its first core.
    is_new: bool,
    is_granted: bool,
    must_leave: bool,
    /// Something that it said was not taken.
    is_refused: bool,
}

impl OfHints {
    /// Of the calling thread.
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
        // What the policy has against it, it has said before the call returns.
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
            // By a call, after those that are in the ring. Of a queue that is closed nothing is
            // expected any more.
            let _ = self.queue.send_now(hint);
        }
    }

    fn listen(&mut self) {
        while let Some(reply) = self.queue.receive() {
            match reply {
                Reply::Granted { .. } => (self.is_granted, self.must_leave) = (true, false),
                Reply::Reclaim { .. } => self.must_leave = true,
                // After it has joined: the first activation has ended, as all do.
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
            // It may have been told already to give it back again.
            if self.is_granted {
                return !stop();
            }
            // Without a policy all run, as threads of whoever schedules them now.
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
        // At once: who computes is heard at its next tick only.
        let _ = self.queue.send_now(&Hint::Request {
            level: self.level,
            cores,
        });
    }
}
