// SPDX-License-Identifier: GPL-2.0-only
//! Synchronisation of user-level threads: joins, mutexes and channels. Kernel threads may use all
//! of it too.

use crate::task::{wait, Waiter, Waiters};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Held for a few instructions only, and never across a wait.
type Short<T> = parking_lot::Mutex<T>;

/// The result of a thread.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// The place for a thread's result, and the thread that waits for it.
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

/// A handle of a spawned user-level thread. The thread continues if the handle is dropped.
pub struct JoinHandle<T>(pub(crate) Arc<Packet<T>>);

impl<T> JoinHandle<T> {
    /// Waits for the thread to end. Returns its result, or the payload of its panic.
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

/// A lock that may be held for long, and across waits. Waiting threads are woken in order of
/// arrival. Any thread that finds the lock free takes it.
pub struct Mutex<T>(Short<Guarded<T>>);

struct Guarded<T> {
    /// None while it is locked: the guard then has the value.
    value: Option<T>,
    waiters: Waiters,
}

impl<T> Mutex<T> {
    /// A mutex around this value.
    pub fn new(value: T) -> Self {
        Self(Short::new(Guarded {
            value: Some(value),
            waiters: Waiters::default(),
        }))
    }

    /// Waits until the mutex is free, and locks it.
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

/// The guard of a locked mutex, which it unlocks on drop. It holds the value meanwhile.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Never `None` outside `drop`.
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
    /// The threads that wait for an item, and those that wait for room.
    takers: Waiters,
    givers: Waiters,
    senders: usize,
    is_received: bool,
}

/// Creates a queue with room for `room` messages (at least one), from any number of senders to one
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

/// The sending end of a [`channel`].
pub struct Sender<T>(Arc<Short<Flow<T>>>);

/// The receiving end of a [`channel`].
pub struct Receiver<T>(Arc<Short<Flow<T>>>);

impl<T> Sender<T> {
    /// Sends an item, after waiting for room. Returns the item if the receiver is gone.
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
    /// Waits for the next item. `None` if all senders are gone.
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
