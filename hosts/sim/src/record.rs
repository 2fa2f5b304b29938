// SPDX-License-Identifier: GPL-2.0-only
//! Records the calls of a policy and its answers, as the kernel host does. A simulation has one
//! thread, so its stamps are a counter.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::AtomicU32;

use baton_abi::{Arg, BatonCtx, BatonFaultKind, BatonHint, BatonMethod};
use baton_native::{NativeHost, Panic, Table};
use baton_trace::{About, Event, FileWriter, Header, Question, Recorder, BLOCK_SIZE};

use crate::host::{address, with, Plain};
use crate::{Config, PolicySpec};

/// The events of one CPU.
#[derive(Default)]
struct Ring {
    recorder: Recorder,
    block: Vec<u8>,
}

/// A recording that is being made.
pub(crate) struct Tape {
    file: FileWriter<Box<dyn Write>>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
    rings: Vec<Ring>,
    /// The last stamp.
    clock: u64,
    /// Numbers of locks, by address.
    locks: HashMap<usize, u64>,
    /// Whether a call is under way and is not being abandoned.
    in_call: bool,
    /// The number of the fault of the call under way.
    fault: u8,
    /// The CPU whose call has not ended.
    calling: Option<u32>,
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
        let header = Header {
            policy: spec.policy.name(),
            version: spec.policy.ops().version,
            options: spec.options.clone(),
            host: "simulator".into(),
            cpus: cpus
                .iter()
                .map(|cpu| (cpu.core, cpu.llc, cpu.node, cpu.online != 0))
                .collect(),
            max_tasks: config.max_tasks,
            stamp_hz: 0,
            state: with_state.then(|| Header::state_type(&spec.policy.ops().state)),
        };
        Ok(Self {
            file: FileWriter::new(out, &header)?,
            error: None,
            rings: cpus.iter().map(|_| Ring::default()).collect(),
            clock: 0,
            locks: HashMap::new(),
            in_call: false,
            fault: 0,
            calling: None,
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
        for cpu in (0..self.rings.len() as u32).filter(|_| stamp != 0) {
            self.write_block(cpu);
            let ring = &mut self.rings[cpu as usize];
            ring.block.resize(BLOCK_SIZE, 0);
            ring.recorder.open(cpu, stamp);
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
        let ring = &mut self.rings[cpu as usize];
        if ring.recorder.put(&mut ring.block, event) {
            return;
        }
        self.write_block(cpu);
        let ring = &mut self.rings[cpu as usize];
        ring.block.resize(BLOCK_SIZE, 0);
        // The last stamp may be that of this event.
        ring.recorder.open(cpu, self.clock - 1);
        assert!(
            ring.recorder.put(&mut ring.block, event),
            "a new block has room"
        );
    }

    fn write_block(&mut self, cpu: u32) {
        let ring = &mut self.rings[cpu as usize];
        if ring.recorder.close(&mut ring.block) && self.error.is_none() {
            self.error = self.file.block(&ring.block, 0).err();
        }
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
        (self.in_call, self.fault, self.calling) = (true, 0, Some(cpu));
    }

    /// The call ends.
    pub fn end(&mut self, cpu: u32, answer: u64, ctx: &BatonCtx) {
        (self.in_call, self.calling) = (false, None);
        let event = Event::answer(self.stamp(), answer, self.fault, ctx);
        self.put(cpu, &event);
    }

    /// The call under way is being abandoned. What happens in it from now on is not done by the
    /// policy.
    pub fn fail(&mut self, kind: u8) {
        if self.in_call {
            (self.in_call, self.fault) = (false, kind);
        }
    }

    /// Records an action of the policy in a call.
    pub fn note(&mut self, cpu: u32, event: &Event) {
        if self.in_call {
            self.put(cpu, event);
        }
    }

    /// Records that a lock was taken, or was not free.
    pub fn lock(&mut self, cpu: u32, address: usize, is_ours: bool) {
        if self.in_call {
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
        if let Some(cpu) = self.calling {
            let event = Event::Abandoned {
                stamp: self.stamp(),
                kind: self.fault,
            };
            self.put(cpu, &event);
        }
        for cpu in 0..self.rings.len() as u32 {
            let stamp = self.stamp();
            self.put(cpu, &Event::End { stamp });
            self.write_block(cpu);
        }
        self.error.map_or(Ok(()), Err)?;
        self.file.get_mut().flush()
    }
}

/// The functions for runs with a recording.
pub(crate) static TABLE: Table = Table::of::<Recorded>();

fn note(event: &Event) {
    with(|_, host| host.record(|tape, cpu| tape.note(cpu, event)));
}

fn note_lock(word: &AtomicU32, is_ours: bool) {
    with(|_, host| host.record(|tape, cpu| tape.lock(cpu, address(word), is_ours)));
}

/// Records the answer to a question about a CPU, and returns it.
fn noted(question: Question, cpu: i32, yes: bool) -> bool {
    note(&Event::Cpu { question, cpu, yes });
    yes
}

/// [`Plain`], with each of its answers recorded.
struct Recorded;

impl NativeHost for Recorded {
    fn unlock(word: &AtomicU32) -> bool {
        Plain::unlock(word)
    }

    fn panicked(panic: Panic) {
        Plain::panicked(panic);
    }

    fn lock(word: &AtomicU32) -> bool {
        let is_ours = Plain::lock(word);
        // A lock that cannot be taken ends the call.
        if is_ours {
            note_lock(word, true);
        }
        is_ours
    }

    fn try_lock(word: &AtomicU32) -> bool {
        let is_ours = Plain::try_lock(word);
        note_lock(word, is_ours);
        is_ours
    }

    fn token_dropped(token: u64) -> bool {
        let goes_on = Plain::token_dropped(token);
        if !goes_on {
            note(&Event::Dropped(token));
            with(|_, host| host.record(|tape, _| tape.fail(BatonFaultKind::LostTask as u8)));
        }
        goes_on
    }

    fn now() -> u64 {
        let now = Plain::now();
        note(&Event::Now(now));
        now
    }

    fn random() -> u64 {
        let random = Plain::random();
        note(&Event::Random(random));
        random
    }

    fn read(value: u64) -> u64 {
        note(&Event::Read(value));
        value
    }

    fn arm_timer(after_ns: u64) {
        Plain::arm_timer(after_ns);
        note(&Event::ArmTimer(after_ns));
    }

    fn cancel_timer() {
        Plain::cancel_timer();
        note(&Event::CancelTimer);
    }

    fn may_run(slot: u32, cpu: i32) -> bool {
        let yes = Plain::may_run(slot, cpu);
        note(&Event::MayRun { slot, cpu, yes });
        yes
    }

    fn cpu_online(cpu: i32) -> bool {
        noted(Question::Online, cpu, Plain::cpu_online(cpu))
    }

    fn cpu_idle(cpu: i32) -> bool {
        noted(Question::Idle, cpu, Plain::cpu_idle(cpu))
    }

    fn any_idle() -> bool {
        let yes = Plain::any_idle();
        note(&Event::AnyIdle(yes));
        yes
    }

    fn claim_idle(cpu: i32) -> bool {
        noted(Question::Claim, cpu, Plain::claim_idle(cpu))
    }

    fn reply(slot: u32, tag: u32, words: [u64; 6]) -> u32 {
        let answer = Plain::reply(slot, tag, words);
        let reply = BatonHint {
            tag,
            thread: 0,
            words,
        };
        note(&Event::Reply {
            slot,
            reply,
            answer: answer as u8,
        });
        answer
    }
}
