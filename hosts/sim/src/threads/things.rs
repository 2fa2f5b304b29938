// SPDX-License-Identifier: GPL-2.0-only
//! The objects that threads wait for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{eventfd, EventfdFlags};
use rustix::fd::OwnedFd;
use rustix::io::{read, write};
use rustix::pipe::pipe;

use crate::rng::Rng;
use crate::world::{self, Item, Object, Source};

/// The pipe and the eventfd in which one thread sleeps.
pub(super) struct Sleeper {
    ends: (OwnedFd, OwnedFd),
    event: OwnedFd,
}

impl Sleeper {
    pub fn new() -> Result<Self, String> {
        let failed = |why| {
            format!(
                "there is no pipe for each task ({why}); raise the limit of open files (ulimit -n)"
            )
        };
        Ok(Self {
            ends: pipe().map_err(failed)?,
            event: eventfd(0, EventfdFlags::empty()).map_err(failed)?,
        })
    }

    fn sleep(&self, sync: bool) {
        // Only a signal could make these calls fail, and no handler is installed.
        let _ = if sync {
            read(&self.ends.0, &mut [0; 1])
        } else {
            read(&self.event, &mut [0; 8])
        };
    }

    fn wake(&self, sync: bool) {
        let _ = if sync {
            write(&self.ends.1, &[0])
        } else {
            write(&self.event, &1u64.to_ne_bytes())
        };
    }

    /// Wakes the thread from either kind of sleep, the current or the next one.
    pub fn wake_for_good(&self) {
        self.wake(true);
        self.wake(false);
    }
}

/// A waiting thread, and whether it sleeps in its pipe (true) or its eventfd.
type Waiter = (Arc<Sleeper>, bool);

struct Semaphore {
    count: u64,
    waiters: VecDeque<Waiter>,
    /// Whether the last `up` was sync. The next one is expected to be the same.
    sync: bool,
}

struct Barrier {
    of: u32,
    waiters: Vec<Arc<Sleeper>>,
}

enum Thing {
    Semaphore(Mutex<Semaphore>),
    Barrier(Mutex<Barrier>),
    Queue,
    Other,
}

/// The source, and its items for queues that no thread has asked for yet, by queue.
struct Arrivals {
    source: Option<(Box<dyn Source>, Rng)>,
    early: HashMap<u32, VecDeque<(u64, Item)>>,
}

pub(super) struct Things {
    things: Vec<Thing>,
    arrivals: Mutex<Arrivals>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics with it")
}

const WRONG: &str = "a program takes a thing for another kind of thing";

impl Things {
    pub fn new(
        things: Vec<world::Thing>,
        mut sources: Vec<Box<dyn Source>>,
        seed: u64,
    ) -> Result<Self, String> {
        if sources.len() > 1 {
            return Err("more than one source cannot be served by threads".into());
        }
        let thing = |thing| match thing {
            world::Thing::Semaphore { count, .. } => Thing::Semaphore(Mutex::new(Semaphore {
                count,
                waiters: VecDeque::new(),
                sync: false,
            })),
            world::Thing::Barrier { of, .. } => Thing::Barrier(Mutex::new(Barrier {
                of,
                waiters: Vec::new(),
            })),
            world::Thing::Queue { .. } => Thing::Queue,
            world::Thing::Condition { .. } => Thing::Other,
        };
        // The random numbers are those of the simulator.
        let source = sources
            .pop()
            .map(|source| (source, Rng::new(seed, 1 << 40)));
        Ok(Self {
            things: things.into_iter().map(thing).collect(),
            arrivals: Mutex::new(Arrivals {
                source,
                early: HashMap::new(),
            }),
        })
    }

    pub fn down(&self, object: Object, me: &Arc<Sleeper>) -> Result<(), String> {
        let Thing::Semaphore(semaphore) = &self.things[object.0 as usize] else {
            return Err(WRONG.into());
        };
        let mut semaphore = lock(semaphore);
        if semaphore.count > 0 {
            semaphore.count -= 1;
            return Ok(());
        }
        let sync = semaphore.sync;
        semaphore.waiters.push_back((me.clone(), sync));
        drop(semaphore);
        me.sleep(sync);
        Ok(())
    }

    pub fn up(&self, object: Object, sync: bool) -> Result<(), String> {
        let Thing::Semaphore(semaphore) = &self.things[object.0 as usize] else {
            return Err(WRONG.into());
        };
        let mut semaphore = lock(semaphore);
        semaphore.sync = sync;
        match semaphore.waiters.pop_front() {
            Some((first, sync)) => {
                drop(semaphore);
                first.wake(sync);
            }
            None => semaphore.count += 1,
        }
        Ok(())
    }

    pub fn barrier(&self, object: Object, me: &Arc<Sleeper>) -> Result<(), String> {
        let Thing::Barrier(barrier) = &self.things[object.0 as usize] else {
            return Err(WRONG.into());
        };
        let mut barrier = lock(barrier);
        if barrier.waiters.len() as u32 + 1 < barrier.of {
            barrier.waiters.push(me.clone());
            drop(barrier);
            me.sleep(false);
            return Ok(());
        }
        let others = std::mem::take(&mut barrier.waiters);
        drop(barrier);
        others.iter().for_each(|other| other.wake(false));
        Ok(())
    }

    /// Takes the next item for a queue. Returns it with its due time.
    pub fn take(&self, object: Object) -> Result<(u64, Item), String> {
        let Thing::Queue = &self.things[object.0 as usize] else {
            return Err(WRONG.into());
        };
        let mut arrivals = lock(&self.arrivals);
        let Arrivals { source, early } = &mut *arrivals;
        if let Some(next) = early.get_mut(&object.0).and_then(VecDeque::pop_front) {
            return Ok(next);
        }
        let never = || "a task waits for what never comes".to_string();
        let (source, rng) = source.as_mut().ok_or_else(never)?;
        loop {
            let (due, to, item) = source.next(rng).ok_or_else(never)?;
            if to == object {
                return Ok((due, item));
            }
            early.entry(to.0).or_default().push_back((due, item));
        }
    }
}
