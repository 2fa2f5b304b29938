// SPDX-License-Identifier: GPL-2.0-only
//! Recording a policy in user space: what it asks for, and what it is answered.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;

use baton_abi::{BatonFaultKind, BatonHint};
use baton_seam::host::{NativeHost, Panic, WrongMove};
use baton_trace::{Event, Question, Recorder, BLOCK_SIZE};

/// A host whose answers are recorded. Outside of calls, and in one that is being abandoned, nothing
/// is.
pub trait Recording: NativeHost {
    /// Records an action of the policy.
    fn note(event: &Event);
    /// Records that a lock was taken, or was not free.
    fn note_lock(word: &AtomicU32, is_ours: bool);
    /// The call under way is being abandoned.
    fn note_failure(kind: BatonFaultKind);
}

/// A host, with each of its answers recorded.
pub struct Recorded<H>(PhantomData<H>);

/// Records the answer to a question about a CPU, and returns it.
fn noted<H: Recording>(question: Question, cpu: i32, yes: bool) -> bool {
    H::note(&Event::Cpu { question, cpu, yes });
    yes
}

impl<H: Recording> NativeHost for Recorded<H> {
    fn unlock(word: &AtomicU32) -> bool {
        H::unlock(word)
    }

    fn panicked(panic: Panic) {
        H::panicked(panic);
    }

    fn refused(wrong: WrongMove) {
        H::refused(wrong);
    }

    fn lock(word: &AtomicU32) -> bool {
        let is_ours = H::lock(word);
        // A lock that cannot be taken ends the call.
        if is_ours {
            H::note_lock(word, true);
        }
        is_ours
    }

    fn try_lock(word: &AtomicU32) -> bool {
        let is_ours = H::try_lock(word);
        H::note_lock(word, is_ours);
        is_ours
    }

    fn token_dropped(token: u64) -> bool {
        let goes_on = H::token_dropped(token);
        if !goes_on {
            H::note(&Event::Dropped(token));
            H::note_failure(BatonFaultKind::LostTask);
        }
        goes_on
    }

    fn now() -> u64 {
        let now = H::now();
        H::note(&Event::Now(now));
        now
    }

    fn random() -> u64 {
        let random = H::random();
        H::note(&Event::Random(random));
        random
    }

    fn read(value: u64) -> u64 {
        H::note(&Event::Read(value));
        value
    }

    fn arm_timer(after_ns: u64) {
        H::arm_timer(after_ns);
        H::note(&Event::ArmTimer(after_ns));
    }

    fn cancel_timer() {
        H::cancel_timer();
        H::note(&Event::CancelTimer);
    }

    fn may_run(slot: u32, cpu: i32) -> bool {
        let yes = H::may_run(slot, cpu);
        H::note(&Event::MayRun { slot, cpu, yes });
        yes
    }

    fn cpu_online(cpu: i32) -> bool {
        noted::<H>(Question::Online, cpu, H::cpu_online(cpu))
    }

    fn cpu_idle(cpu: i32) -> bool {
        noted::<H>(Question::Idle, cpu, H::cpu_idle(cpu))
    }

    fn any_idle() -> bool {
        let yes = H::any_idle();
        H::note(&Event::AnyIdle(yes));
        yes
    }

    fn claim_idle(cpu: i32) -> bool {
        noted::<H>(Question::Claim, cpu, H::claim_idle(cpu))
    }

    fn reply(slot: u32, tag: u32, words: [u64; 6]) -> u32 {
        let answer = H::reply(slot, tag, words);
        let reply = BatonHint {
            tag,
            thread: 0,
            words,
        };
        H::note(&Event::Reply {
            slot,
            reply,
            answer: answer as u8,
        });
        answer
    }
}

/// What the call of a lane does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Course {
    /// There is no call.
    None,
    Runs,
    /// It is being abandoned, with the number of the fault. What happens in it from now on is not
    /// done by the policy.
    Fails(u8),
}

/// The events of one CPU. Full blocks go to `write`.
pub struct Lane {
    cpu: u32,
    recorder: Recorder,
    block: Vec<u8>,
    course: Course,
}

impl Lane {
    /// The lane of a CPU, without events.
    pub fn new(cpu: u32) -> Self {
        Self {
            cpu,
            recorder: Recorder::default(),
            block: Vec::new(),
            course: Course::None,
        }
    }

    /// Adds an event. Its stamp, or that of the next event that has one, is later than `after`.
    pub fn put(&mut self, event: &Event, after: u64, write: impl FnMut(&[u8])) {
        if self.recorder.put(&mut self.block, event) {
            return;
        }
        self.reopen(after, write);
        assert!(
            self.recorder.put(&mut self.block, event),
            "a new block has room"
        );
    }

    /// Ends the block.
    pub fn close(&mut self, mut write: impl FnMut(&[u8])) {
        if self.recorder.close(&mut self.block) {
            write(&self.block);
        }
    }

    /// Ends the block, and begins another for events later than `after`.
    pub fn reopen(&mut self, after: u64, write: impl FnMut(&[u8])) {
        self.close(write);
        self.block.resize(BLOCK_SIZE, 0);
        self.recorder.open(self.cpu, after);
    }

    /// The last stamp that was written.
    pub fn last_stamp(&self) -> u64 {
        self.recorder.last_stamp()
    }

    /// A call begins.
    pub fn begin_call(&mut self) {
        self.course = Course::Runs;
    }

    /// The call is being abandoned. The first fault counts.
    pub fn fail_call(&mut self, kind: u8) {
        if self.runs() {
            self.course = Course::Fails(kind);
        }
    }

    /// The call ends. Returns the number of its fault, or 0.
    pub fn end_call(&mut self) -> u8 {
        match std::mem::replace(&mut self.course, Course::None) {
            Course::Fails(kind) => kind,
            Course::None | Course::Runs => 0,
        }
    }

    /// Is there a call that has not ended?
    pub fn is_in_call(&self) -> bool {
        self.course != Course::None
    }

    /// Is there a call that is not being abandoned?
    pub fn runs(&self) -> bool {
        self.course == Course::Runs
    }
}
