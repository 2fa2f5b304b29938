// SPDX-License-Identifier: GPL-2.0-only
//! Records the calls of a policy in an agent, as the kernel host does. Each thread has a lane, that
//! of its own CPU, and a counter stamps the events of all lanes.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_abi::{Arg, BatonCpu, BatonCtx, BatonFaultKind, BatonMethod};
use baton_native::{Lane, Policy, Recorded, Recording, Table};
use baton_trace::{About, Event, FileWriter, Header};

use crate::host::{with, AgentHost};

/// A recording that is being made.
pub(crate) struct Tape {
    /// By CPU; used by the thread of that CPU alone, until the end.
    lanes: Vec<Mutex<Lane>>,
    /// The last stamp.
    clock: AtomicU64,
    /// Numbers of locks, by address.
    locks: Mutex<HashMap<usize, u64>>,
    /// Held for each call: a recorded agent makes one call at a time. An agent of a CPU can ask for
    /// a task for another CPU while that CPU's own agent calls the policy about the same task.
    /// Which of them stores first is not an event, so a replay could not repeat it.
    turn: Mutex<()>,
    file: Mutex<Out>,
}

struct Out {
    file: FileWriter<BufWriter<File>>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
}

thread_local! {
    /// The lane of this thread.
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Locks what no thread leaves in the middle of a change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread is the agent of a CPU.
pub(crate) fn use_lane(cpu: usize) {
    LANE.set(cpu);
}

impl Tape {
    /// Begins a file. The CPUs are those that the policy gets.
    pub fn create(
        path: &Path,
        policy: Policy,
        options: &str,
        cpus: &[BatonCpu],
        max_tasks: u32,
    ) -> io::Result<Self> {
        let mut header = Header {
            policy: policy.name(),
            version: policy.ops().version,
            options: options.into(),
            host: "agent".into(),
            max_tasks,
            stamp_hz: 0,
            state: None,
            ..Header::default()
        };
        header.set_places(cpus);
        let file = FileWriter::new(BufWriter::new(File::create(path)?), &header)?;
        Ok(Self {
            lanes: (0..cpus.len() as u32)
                .map(|cpu| Mutex::new(Lane::new(cpu)))
                .collect(),
            clock: AtomicU64::new(0),
            locks: Mutex::new(HashMap::new()),
            turn: Mutex::new(()),
            file: Mutex::new(Out { file, error: None }),
        })
    }

    fn stamp(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst) + 1
    }

    fn write(&self, block: &[u8]) {
        let mut out = locked(&self.file);
        if out.error.is_none() {
            out.error = out.file.block(block, 0).err();
        }
    }

    fn put(&self, lane: &mut Lane, event: &Event) {
        lane.put(event, lane.last_stamp(), |block| self.write(block));
    }

    fn own(&self) -> MutexGuard<'_, Lane> {
        locked(&self.lanes[LANE.get()])
    }

    /// Waits for this thread's turn. A call begins and ends before what this returns is dropped.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        locked(&self.turn)
    }

    /// A call begins on this thread, whose turn it is.
    pub fn begin(&self, method: BatonMethod, ctx: &BatonCtx, a: &Arg<'_>, b: &Arg<'_>) {
        let lane = &mut *self.own();
        let event = Event::call(self.stamp(), method, ctx, About::of(method, a, b));
        self.put(lane, &event);
        lane.begin_call();
    }

    /// The call ends.
    pub fn end(&self, answer: u64, ctx: &BatonCtx) {
        let lane = &mut *self.own();
        let fault = lane.end_call();
        let event = Event::answer(self.stamp(), answer, fault, ctx);
        self.put(lane, &event);
    }

    /// The call under way on this thread is being abandoned.
    pub fn fail(&self, kind: BatonFaultKind) {
        self.own().fail_call(kind as u8);
    }

    fn note(&self, event: &Event) {
        let lane = &mut *self.own();
        if lane.runs() {
            self.put(lane, event);
        }
    }

    /// A lock was taken just now, or was not free.
    fn lock(&self, address: usize, is_ours: bool) {
        let lane = &mut *self.own();
        if !lane.runs() {
            return;
        }
        let id = {
            let mut locks = locked(&self.locks);
            let next = locks.len() as u64 + 1;
            *locks.entry(address).or_insert(next)
        };
        let event = if is_ours {
            Event::Lock {
                stamp: self.stamp(),
                id,
            }
        } else {
            Event::Busy { id }
        };
        self.put(lane, &event);
    }

    /// Ends the recording. No thread calls the policy any more.
    pub fn finish(&self) -> io::Result<()> {
        for lane in &self.lanes {
            let lane = &mut *locked(lane);
            let stamp = self.stamp();
            self.put(lane, &Event::End { stamp });
            lane.close(|block| self.write(block));
        }
        let mut out = locked(&self.file);
        match out.error.take() {
            Some(error) => Err(error),
            None => out.file.get_mut().flush(),
        }
    }
}

/// The functions for runs with a recording.
pub(crate) static TABLE: Table = Table::of::<Recorded<AgentHost>>();

/// Calls `note` with the recording.
fn record(note: impl FnOnce(&Tape)) {
    with(|services| {
        if let Some(tape) = &services.tape {
            note(tape);
        }
    });
}

impl Recording for AgentHost {
    fn note(event: &Event) {
        record(|tape| tape.note(event));
    }

    fn note_lock(word: &AtomicU32, is_ours: bool) {
        record(|tape| tape.lock(std::ptr::from_ref(word) as usize, is_ours));
    }

    fn note_failure(kind: BatonFaultKind) {
        record(|tape| tape.fail(kind));
    }
}
