// SPDX-License-Identifier: GPL-2.0-only
//! What user-level threads wait for: each other's ends, mutexes, and messages. Kernel threads may
//! use all of it, too.

use crate::task::{wait, Waiter, Waiters};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Held for a few instructions only, and never while anyone waits.
type Short<T> = parking_lot::Mutex<T>;

/// What a thread leaves behind.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// Where it leaves it, and who waits for that.
pub(crate) struct Packet<T>(Short<(Option<Outcome<T>>, Option<Waiter>)>);

impl<T> Packet<T> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Short::new((None, None))))
    }

    pub fn fill(&self, outcome: Outcome<T>) {
        let waiter = {
            let mut packet = self.0.lock();
            packet.0 = Some(outcome);
            packet.1.take()
        };
        waiter.into_iter().for_each(Waiter::wake);
    }
}

/// A user-level thread that was spawned. It goes on when this is dropped.
pub struct JoinHandle<T>(pub(crate) Arc<Packet<T>>);

impl<T> JoinHandle<T> {
    /// Waits for its end: what it returned, or what it panicked with.
    pub fn join(self) -> Result<T, Box<dyn Any + Send>> {
        loop {
            {
                let mut packet = self.0 .0.lock();
                if let Some(outcome) = packet.0.take() {
                    return outcome;
                }
                packet.1 = Some(Waiter::current());
            }
            wait();
        }
    }
}

/// A lock for what is held for longer, across waits too. Who waits is woken in turn; who finds it
/// free has it.
pub struct Mutex<T>(Short<Guarded<T>>);

struct Guarded<T> {
    /// None while it is locked: then the guard has it.
    value: Option<T>,
    waiters: Waiters,
}

impl<T> Mutex<T> {
    /// Of this value.
    pub fn new(value: T) -> Self {
        Self(Short::new(Guarded {
            value: Some(value),
            waiters: Waiters::default(),
        }))
    }

    /// Waits until nobody has it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            {
                let mut guarded = self.0.lock();
                if let Some(value) = guarded.value.take() {
                    guarded.waiters.leave();
                    return MutexGuard {
                        mutex: self,
                        value: Some(value),
                    };
                }
                guarded.waiters.join();
            }
            wait();
        }
    }
}

/// A mutex that is locked, until this is dropped. The value is in here meanwhile.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// None at no time that anyone can see.
    value: Option<T>,
}

const HELD: &str = "a guard has the value until it is dropped";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(HELD)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        let next = {
            let mut guarded = self.mutex.0.lock();
            guarded.value = self.value.take();
            guarded.waiters.next()
        };
        next.into_iter().for_each(Waiter::wake);
    }
}

struct Flow<T> {
    items: VecDeque<T>,
    room: usize,
    /// Who waits for an item, or for room.
    takers: Waiters,
    givers: Waiters,
    senders: usize,
    is_received: bool,
}

/// A queue of messages with room for so many (at least one), from any number of senders to one
/// receiver.
pub fn channel<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let flow = Flow {
        items: VecDeque::new(),
        room: room.max(1),
        takers: Waiters::default(),
        givers: Waiters::default(),
        senders: 1,
        is_received: true,
    };
    let flow = Arc::new(Short::new(flow));
    (Sender(Arc::clone(&flow)), Receiver(flow))
}

/// One end of a [`channel`].
pub struct Sender<T>(Arc<Short<Flow<T>>>);

/// The other.
pub struct Receiver<T>(Arc<Short<Flow<T>>>);

impl<T> Sender<T> {
    /// Sends, when there is room. Gives the item back if the receiver is gone.
    pub fn send(&self, item: T) -> Result<(), T> {
        loop {
            {
                let mut flow = self.0.lock();
                if !flow.is_received {
                    return Err(item);
                }
                if flow.items.len() < flow.room {
                    flow.items.push_back(item);
                    flow.givers.leave();
                    let taker = flow.takers.next();
                    drop(flow);
                    taker.into_iter().for_each(Waiter::wake);
                    return Ok(());
                }
                flow.givers.join();
            }
            wait();
        }
    }
}

impl<T> Receiver<T> {
    /// The next item. None when all senders are gone.
    pub fn receive(&self) -> Option<T> {
        loop {
            {
                let mut flow = self.0.lock();
                if let Some(item) = flow.items.pop_front() {
                    flow.takers.leave();
                    let giver = flow.givers.next();
                    drop(flow);
                    giver.into_iter().for_each(Waiter::wake);
                    return Some(item);
                }
                if flow.senders == 0 {
                    return None;
                }
                flow.takers.join();
            }
            wait();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let takers = {
            let mut flow = self.0.lock();
            flow.senders -= 1;
            if flow.senders == 0 {
                std::mem::take(&mut flow.takers)
            } else {
                Waiters::default()
            }
        };
        takers.wake_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let givers = {
            let mut flow = self.0.lock();
            flow.is_received = false;
            std::mem::take(&mut flow.givers)
        };
        givers.wake_all();
    }
}
