// SPDX-License-Identifier: GPL-2.0-only
//! The state that all lanes share: the order of events, and the owners of locks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::ahead::NEVER;
use crate::{End, Fault, Options, Until};

/// How a lane waits.
enum Wait {
    /// The lane is a coroutine, and lets the next one go on.
    Yield,
    /// The lane is a thread. One condition variable for each lane.
    Block(Vec<Condvar>),
}

/// The state that all lanes share, and how they wait.
pub(crate) struct Order {
    state: Mutex<State>,
    wait: Wait,
    begin: u64,
    until: Option<Until>,
    progress: Arc<AtomicU64>,
}

pub(crate) struct State {
    /// By lane: the stamp of its next stamped event.
    next: Vec<u64>,
    /// By lane: whether it waits for its turn.
    waits: Vec<bool>,
    /// The lane that waits for a lock although it is its turn; threads only.
    wants_lock: Option<usize>,
    /// Why the replay ends.
    pub end: Option<End>,
    /// Number of events with a number, including some that have not been replayed yet.
    pub numbered: u64,
    pub calls: u64,
    /// Time of the first call and of the last, ns.
    pub times: Option<(u64, u64)>,
    pub faults: Vec<Fault>,
    locks: Locks,
}

/// Addresses of locks, and their ids in the recording: a one-to-one mapping.
#[derive(Default)]
struct Locks {
    by_id: HashMap<u64, usize, BuildHasherDefault<Spread>>,
    by_address: HashMap<usize, Lock, BuildHasherDefault<Spread>>,
}

struct Lock {
    id: u64,
    holder: Option<usize>,
}

/// Hashes one number. It need not resist an attacker, as addresses and ids are not hostile.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// The result of a wait for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The lane has the lock.
    Granted,
    /// The replay ends.
    Ended,
    /// It is not the recorded lock. A description of the lock, as far as known.
    Other(String),
    /// It is held, and will not be released before this lane's turn is over. The lane that holds
    /// it.
    Held(usize),
}

impl Order {
    /// `stamps` are those of the first stamped event of each lane, `numbered` the number of events
    /// that have numbers already, and `begin` the time at which the recording began, ns.
    pub fn new(stamps: Vec<u64>, numbered: u64, begin: u64, options: &Options) -> Self {
        let lanes = stamps.len();
        let wait = if options.single {
            Wait::Yield
        } else {
            Wait::Block((0..lanes).map(|_| Condvar::new()).collect())
        };
        let state = State {
            next: stamps,
            waits: vec![false; lanes],
            wants_lock: None,
            end: None,
            numbered,
            calls: 0,
            times: None,
            faults: Vec::new(),
            locks: Locks::default(),
        };
        Self {
            state: Mutex::new(state),
            wait,
            begin,
            until: options.until,
            progress: options.progress.clone(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn notify(&self, lane: usize) {
        if let Wait::Block(lanes) = &self.wait {
            lanes[lane].notify_one();
        }
    }

    /// Ends the replay for all lanes. Of several reasons, that of the earliest event counts.
    pub fn end(&self, state: &mut State, end: End) {
        let number = |end: &End| {
            if let End::Diverged(it) = end {
                it.number
            } else {
                u64::MAX
            }
        };
        if state
            .end
            .as_ref()
            .is_none_or(|before| number(&end) < number(before))
        {
            state.end = Some(end);
        }
        (0..state.next.len()).for_each(|lane| self.notify(lane));
    }

    /// Waits until all stamped events of other lanes before this lane's next event are done.
    /// Returns the number of that event, or `None` if the replay ends. `now` is the time of a call
    /// that begins; `switch` lets another coroutine go on.
    #[inline]
    pub fn turn(&self, lane: usize, now: Option<u64>, switch: impl Fn()) -> Option<u64> {
        let mut state = self.state();
        while state.end.is_none() && state.first() != lane {
            state.waits[lane] = true;
            if let Some(other) = state.wants_lock {
                // The lane that holds the lock may be this one, which waits now.
                self.notify(other);
            }
            state = match &self.wait {
                Wait::Block(lanes) => lanes[lane]
                    .wait(state)
                    .unwrap_or_else(|poisoned| poisoned.into_inner()),
                Wait::Yield => {
                    drop(state);
                    switch();
                    self.state()
                }
            };
            state.waits[lane] = false;
        }
        if state.end.is_some() {
            return None;
        }
        let is_over = match self.until {
            None => false,
            Some(Until::Event(number)) => state.numbered >= number,
            Some(Until::Time(after)) => {
                now.is_some_and(|now| now.saturating_sub(self.begin) >= after)
            }
        };
        if is_over {
            self.end(&mut state, End::Until);
            return None;
        }
        if let Some(now) = now {
            let first = state.times.map_or(now, |(first, _)| first);
            state.times = Some((first, now.max(first)));
            state.calls += 1;
        }
        Some(state.numbered)
    }

    /// Marks the lane's event as done. `unstamped` more events have their numbers after it, and the
    /// next one has the stamp `next`.
    #[inline]
    pub fn done(&self, lane: usize, next: u64, unstamped: u64) {
        let mut state = self.state();
        state.numbered += 1 + unstamped;
        self.progress.store(state.numbered, Relaxed);
        state.next[lane] = next;
        if matches!(self.wait, Wait::Block(_)) {
            let first = state.first();
            if state.waits[first] {
                self.notify(first);
            }
            if let Some(other) = state.wants_lock {
                self.notify(other);
            }
        }
    }

    /// The lane that goes on next, for coroutines; `None` when all have ended.
    pub fn next(&self) -> Option<usize> {
        let state = self.state();
        let first = state.first();
        (*state.next.get(first)? != NEVER && state.end.is_none()).then_some(first)
    }

    /// Gives the lock to the lane, whose turn it is.
    pub fn lock(&self, lane: usize, address: usize, id: u64) -> Grant {
        let mut state = self.state();
        if let Err(what) = state.locks.is(address, id) {
            return Grant::Other(what);
        }
        loop {
            let lock = state
                .locks
                .by_address
                .get_mut(&address)
                .expect("it was entered");
            let Some(holder) = lock.holder else {
                lock.holder = Some(lane);
                state.wants_lock = None;
                return Grant::Granted;
            };
            let Wait::Block(lanes) = &self.wait else {
                return Grant::Held(holder);
            };
            if holder == lane || state.waits[holder] || state.next[holder] == NEVER {
                return Grant::Held(holder);
            }
            state.wants_lock = Some(lane);
            state = lanes[lane]
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            if state.end.is_some() {
                return Grant::Ended;
            }
        }
    }

    /// Whether the lock has this id in the recording.
    pub fn is_lock(&self, address: usize, id: u64) -> Result<(), String> {
        self.state().locks.is(address, id)
    }

    /// The lock's name in the recording.
    pub fn name_of_lock(&self, address: usize) -> String {
        match self.state().locks.by_address.get(&address) {
            Some(lock) => format!("lock {:#x}", lock.id),
            None => "a lock that it has not taken before".into(),
        }
    }

    /// Releases the lock, whichever lane has it.
    pub fn unlock(&self, address: usize) {
        let mut state = self.state();
        if let Some(lock) = state.locks.by_address.get_mut(&address) {
            lock.holder = None;
        }
        if let Some(other) = state.wants_lock {
            self.notify(other);
        }
    }
}

impl State {
    /// The lane with the earliest event.
    #[inline]
    fn first(&self) -> usize {
        let mut first = 0;
        for (lane, next) in self.next.iter().enumerate() {
            if *next < self.next[first] {
                first = lane;
            }
        }
        first
    }
}

impl Locks {
    fn is(&mut self, address: usize, id: u64) -> Result<(), String> {
        match (self.by_address.get(&address), self.by_id.get(&id)) {
            (None, None) => {
                self.by_id.insert(id, address);
                self.by_address.insert(address, Lock { id, holder: None });
                Ok(())
            }
            (Some(lock), _) if lock.id == id => Ok(()),
            (Some(lock), _) => Err(format!("lock {:#x}", lock.id)),
            (None, Some(_)) => Err("a lock that it has not taken before".into()),
        }
    }
}
