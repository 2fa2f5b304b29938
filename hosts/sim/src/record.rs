// SPDX-License-Identifier: GPL-2.0-only
//! Records the calls of a policy and its answers, as the kernel host does. A simulation has one
//! thread, so its stamps are a counter.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::AtomicU32;

use baton_abi::{Arg, BatonCtx, BatonFaultKind, BatonMethod};
use baton_native::{Lane, Recorded, Recording, Table};
use baton_trace::{About, Event, FileWriter, Header};

use crate::host::{address, with, Plain};
use crate::{Config, PolicySpec};

/// A recording that is being made.
pub(crate) struct Tape {
    file: FileWriter<Box<dyn Write>>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
    /// By CPU.
    lanes: Vec<Lane>,
    /// The last stamp.
    clock: u64,
    /// Numbers of locks, by address.
    locks: HashMap<usize, u64>,
    /// Whether it has the policy's initial state.
    has_begun: bool,
}

impl Tape {
    /// With `with_state`, it begins with the policy's state and has checkpoints.
    pub fn new(
        config: &Config,
        spec: &PolicySpec,
        with_state: bool,
        out: Box<dyn Write>,
    ) -> io::Result<Self> {
        let cpus = config.topology.cpus();
        let mut header = Header {
            policy: spec.policy.name(),
            version: spec.policy.ops().version,
            options: spec.options.clone(),
            host: "simulator".into(),
            max_tasks: config.max_tasks,
            stamp_hz: 0,
            state: with_state.then(|| Header::state_type(&spec.policy.ops().state)),
            ..Header::default()
        };
        header.set_places(cpus);
        Ok(Self {
            file: FileWriter::new(out, &header)?,
            error: None,
            lanes: (0..cpus.len() as u32).map(Lane::new).collect(),
            clock: 0,
            locks: HashMap::new(),
            has_begun: false,
        })
    }

    /// Adds the policy's state between two events. Later events go into new blocks.
    pub fn checkpoint(&mut self, state: &[u8]) {
        let stamp = if std::mem::replace(&mut self.has_begun, true) {
            self.stamp()
        } else {
            0
        };
        for lane in self.lanes.iter_mut().filter(|_| stamp != 0) {
            lane.reopen(stamp, write_to(&mut self.file, &mut self.error));
        }
        if self.error.is_none() {
            self.error = self.file.state(stamp, state).err();
        }
    }

    fn stamp(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn put(&mut self, cpu: u32, event: &Event) {
        // The last stamp may be that of this event.
        let after = self.clock.saturating_sub(1);
        let lane = &mut self.lanes[cpu as usize];
        lane.put(event, after, write_to(&mut self.file, &mut self.error));
    }

    /// A call begins on this CPU.
    pub fn begin(
        &mut self,
        cpu: u32,
        method: BatonMethod,
        ctx: &BatonCtx,
        a: &Arg<'_>,
        b: &Arg<'_>,
    ) {
        let event = Event::call(self.stamp(), method, ctx, About::of(method, a, b));
        self.put(cpu, &event);
        self.lanes[cpu as usize].begin_call();
    }

    /// The call ends.
    pub fn end(&mut self, cpu: u32, answer: u64, ctx: &BatonCtx) {
        let fault = self.lanes[cpu as usize].end_call();
        let event = Event::answer(self.stamp(), answer, fault, ctx);
        self.put(cpu, &event);
    }

    /// The call under way is being abandoned.
    pub fn fail(&mut self, cpu: u32, kind: u8) {
        self.lanes[cpu as usize].fail_call(kind);
    }

    /// Records an action of the policy in a call.
    pub fn note(&mut self, cpu: u32, event: &Event) {
        if self.lanes[cpu as usize].runs() {
            self.put(cpu, event);
        }
    }

    /// Records that a lock was taken, or was not free.
    pub fn lock(&mut self, cpu: u32, address: usize, is_ours: bool) {
        if self.lanes[cpu as usize].runs() {
            let next = self.locks.len() as u64 + 1;
            let id = *self.locks.entry(address).or_insert(next);
            let event = if is_ours {
                Event::Lock {
                    stamp: self.stamp(),
                    id,
                }
            } else {
                Event::Busy { id }
            };
            self.put(cpu, &event);
        }
    }

    /// Ends the recording.
    pub fn finish(mut self) -> io::Result<()> {
        // A call that was abandoned midway.
        let calling = self.lanes.iter().position(Lane::is_in_call);
        if let Some(cpu) = calling {
            let kind = self.lanes[cpu].end_call();
            let stamp = self.stamp();
            self.put(cpu as u32, &Event::Abandoned { stamp, kind });
        }
        for cpu in 0..self.lanes.len() {
            let stamp = self.stamp();
            self.put(cpu as u32, &Event::End { stamp });
            self.lanes[cpu].close(write_to(&mut self.file, &mut self.error));
        }
        self.error.map_or(Ok(()), Err)?;
        self.file.get_mut().flush()
    }
}

/// Writes blocks to a file, up to the first error.
fn write_to<'a>(
    file: &'a mut FileWriter<Box<dyn Write>>,
    error: &'a mut Option<io::Error>,
) -> impl FnMut(&[u8]) + 'a {
    |block| {
        if error.is_none() {
            *error = file.block(block, 0).err();
        }
    }
}

/// The functions for runs with a recording.
pub(crate) static TABLE: Table = Table::of::<Recorded<Plain>>();

impl Recording for Plain {
    fn note(event: &Event) {
        with(|_, host| host.record(|tape, cpu| tape.note(cpu, event)));
    }

    fn note_lock(word: &AtomicU32, is_ours: bool) {
        with(|_, host| host.record(|tape, cpu| tape.lock(cpu, address(word), is_ours)));
    }

    fn note_failure(kind: BatonFaultKind) {
        with(|_, host| host.record(|tape, cpu| tape.fail(cpu, kind as u8)));
    }
}
