// SPDX-License-Identifier: GPL-2.0-only
//! Encodes events as bytes. One [`Codec`] writes the events of a block and another reads them. Both
//! keep the same state of the preceding events.
//!
//! ```text
//! event   := tag:u8 ...                        numbers are varints (LEB128), signed ones zigzag
//! call    := method:u8 bits:u8 stamp [coarse] [cpu] [flags] [carried] about   stamp: the difference to the last
//! carried := slice count:u8 kick*
//! about   := task prev_cpu waker_cpu flags | task token | task | which [task] | which | token why:u8 | task thread hint
//! hint    := tag count:u8 word*                words of 0 at the end are left out
//! task    := slot [pid nice] [cpu] runtime     runtime: the difference to what is remembered of the slot
//! token   := generation | word                 the first when it is the task's own
//! ```
//! The other events are in `docs/formats/trace.md`, and below.

use crate::event::{About, Call, Carried, Event, Question, Return, Shape};
use baton_abi::{BatonHint, BatonTask, BatonWake, BATON_MAX_KICKS};

/// Maximum length of an event in bytes.
pub const MAX_EVENT: usize = 256;

const RETURN: u8 = 32;
const RETURN_WITH: u8 = 33;
const ABANDONED: u8 = 34;
const LOCK_AGAIN: u8 = 35;
const LOCK: u8 = 36;
const BUSY: u8 = 37;
const NOW: u8 = 38;
const RANDOM: u8 = 39;
const READ: u8 = 40;
const ARM_TIMER: u8 = 41;
const CANCEL_TIMER: u8 = 42;
const DROPPED: u8 = 44;
const END: u8 = 45;
const NO_MEMORY: u8 = 46;
const REPLY: u8 = 47;
// Each of these has its answer in bit 0.
const ANY_IDLE: u8 = 48;
const MAY_RUN: u8 = 50;
const ONLINE: u8 = 52;
const IDLE: u8 = 54;
const CLAIM: u8 = 56;

// Bits in the second byte of a call. They determine the fields that follow.
const COARSE: u8 = 1 << 0;
const OTHER_CPU: u8 = 1 << 1;
const FLAGS: u8 = 1 << 2;
const TASK: u8 = 1 << 3;
/// Process id and nice value are those remembered.
const KNOWN: u8 = 1 << 4;
const TASK_CPU: u8 = 1 << 5;
const OWN_TOKEN: u8 = 1 << 6;
const CARRIED: u8 = 1 << 7;

/// Number of tasks that are remembered.
const TASKS: usize = 8;

/// The state kept within a block. An all-zero value is the state at its beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Codec {
    cpu: i32,
    reserved: u32,
    stamp: u64,
    coarse: u64,
    now: u64,
    lock: u64,
    tasks: [Remembered; TASKS],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    /// Slot plus one; 0 for an unused entry.
    slot: u32,
    pid: u32,
    nice: i32,
    reserved: u32,
    runtime: u64,
}

/// The bytes are not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

struct Writer<'a> {
    out: &'a mut [u8; MAX_EVENT],
    at: usize,
}

impl Writer<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        // The remainder is for the compiler: no event is longer.
        self.out[self.at % MAX_EVENT] = byte;
        self.at += 1;
    }

    #[inline(always)]
    fn word(&mut self, mut word: u64) {
        while word >= 0x80 {
            self.byte(word as u8 | 0x80);
            word >>= 7;
        }
        self.byte(word as u8);
    }

    #[inline(always)]
    fn signed(&mut self, word: i64) {
        self.word(((word << 1) ^ (word >> 63)) as u64);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    fn word(&mut self) -> Result<u64, Malformed> {
        let mut word = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Malformed);
            }
            word |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(word);
            }
        }
        Err(Malformed)
    }

    fn signed(&mut self) -> Result<i64, Malformed> {
        let word = self.word()?;
        Ok((word >> 1) as i64 ^ -((word & 1) as i64))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.word()?).map_err(|_| Malformed)
    }

    fn cpu(&mut self) -> Result<i32, Malformed> {
        i32::try_from(self.signed()?).map_err(|_| Malformed)
    }
}

impl Codec {
    /// Begins a block of this CPU whose events are all later than `stamp`.
    pub fn begin(&mut self, cpu: i32, stamp: u64) {
        *self = Self {
            cpu,
            stamp,
            ..Self::default()
        };
    }

    pub(crate) fn last_stamp(&self) -> u64 {
        self.stamp
    }

    #[inline(always)]
    fn stamp(&mut self, stamp: u64, w: &mut Writer<'_>) {
        // A stamp should not go back, but if one does, the wrapping difference preserves it.
        w.word(stamp.wrapping_sub(self.stamp));
        self.stamp = stamp;
    }

    #[inline(always)]
    fn task(&mut self, task: &BatonTask, ctx_cpu: i32, bits: &mut u8, w: &mut Writer<'_>) {
        *bits |= TASK;
        let memory = &mut self.tasks[task.slot as usize % TASKS];
        w.word(u64::from(task.slot));
        if memory.slot == task.slot.wrapping_add(1)
            && memory.pid == task.pid
            && memory.nice == task.nice
        {
            *bits |= KNOWN;
        } else {
            *memory = Remembered {
                slot: task.slot.wrapping_add(1),
                pid: task.pid,
                nice: task.nice,
                ..Remembered::default()
            };
            w.word(u64::from(task.pid));
            w.signed(i64::from(task.nice));
        }
        if task.cpu != ctx_cpu {
            *bits |= TASK_CPU;
            w.signed(i64::from(task.cpu));
        }
        w.word(task.runtime.wrapping_sub(memory.runtime));
        memory.runtime = task.runtime;
    }

    #[inline(always)]
    fn token(token: u64, task: &BatonTask, bits: &mut u8, w: &mut Writer<'_>) {
        if token as u32 == task.slot.wrapping_add(1) {
            *bits |= OWN_TOKEN;
            w.word(token >> 32);
        } else {
            w.word(token);
        }
    }

    #[inline(always)]
    fn call(&mut self, call: &Call, w: &mut Writer<'_>) {
        let mut bits = 0;
        w.byte(call.method);
        w.byte(0);
        self.stamp(call.stamp, w);
        if call.now != self.coarse {
            bits |= COARSE;
            w.word(call.now.wrapping_sub(self.coarse));
            self.coarse = call.now;
        }
        if call.cpu != self.cpu {
            bits |= OTHER_CPU;
            w.signed(i64::from(call.cpu));
        }
        if call.flags != 0 {
            bits |= FLAGS;
            w.word(u64::from(call.flags));
        }
        if call.carried.slice | u64::from(call.carried.nr_kicks) != 0 {
            bits |= CARRIED;
            Self::carried(&call.carried, w);
        }
        match &call.about {
            About::Waking(task, wake) => {
                self.task(task, call.cpu, &mut bits, w);
                w.signed(i64::from(wake.prev_cpu));
                w.signed(i64::from(wake.waker_cpu));
                w.word(u64::from(wake.flags));
            }
            About::Given(task, token) => {
                self.task(task, call.cpu, &mut bits, w);
                Self::token(*token, task, &mut bits, w);
            }
            About::Task(task) => self.task(task, call.cpu, &mut bits, w),
            About::Pick(which, prev) => {
                w.signed(i64::from(*which));
                if let Some(task) = prev {
                    self.task(task, call.cpu, &mut bits, w);
                }
            }
            About::Cpu(which) => w.signed(i64::from(*which)),
            About::Refused(token, why) => {
                w.word(*token);
                w.byte(*why);
            }
            About::Hint(task, hint) => {
                self.task(task, call.cpu, &mut bits, w);
                w.word(u64::from(hint.thread));
                Self::hint(hint, w);
            }
        }
        w.out[1] = bits;
    }

    /// Writes a hint, except for its thread.
    fn hint(hint: &BatonHint, w: &mut Writer<'_>) {
        w.word(u64::from(hint.tag));
        let count = hint
            .words
            .iter()
            .rposition(|word| *word != 0)
            .map_or(0, |last| last + 1);
        w.byte(count as u8);
        hint.words.iter().take(count).for_each(|word| w.word(*word));
    }

    #[inline(always)]
    fn answer(&mut self, end: &Return, w: &mut Writer<'_>) {
        let plain = end.answer | end.carried.slice | u64::from(end.carried.nr_kicks) == 0;
        w.byte(if plain { RETURN } else { RETURN_WITH });
        self.stamp(end.stamp, w);
        if !plain {
            w.word(end.answer & 0xffff_ffff);
            w.word(end.answer >> 32);
            Self::carried(&end.carried, w);
        }
    }

    #[inline(always)]
    fn carried(carried: &Carried, w: &mut Writer<'_>) {
        w.word(carried.slice);
        let count = usize::from(carried.nr_kicks).min(BATON_MAX_KICKS);
        w.byte(count as u8);
        carried
            .kicks
            .iter()
            .take(count)
            .for_each(|kick| w.word(u64::from(*kick)));
    }

    /// Writes an event and returns its length in bytes. No allocation, no panic.
    #[inline(always)]
    pub fn write(&mut self, event: &Event, out: &mut [u8; MAX_EVENT]) -> usize {
        let w = &mut Writer { out, at: 0 };
        match event {
            Event::Call(call) => self.call(call, w),
            Event::Return(end) => self.answer(end, w),
            Event::Abandoned { stamp, kind } => {
                w.byte(ABANDONED);
                self.stamp(*stamp, w);
                w.byte(*kind);
            }
            Event::Lock { stamp, id } => {
                w.byte(if *id == self.lock { LOCK_AGAIN } else { LOCK });
                self.stamp(*stamp, w);
                if *id != self.lock {
                    w.word(*id);
                    self.lock = *id;
                }
            }
            Event::Busy { id } => {
                w.byte(BUSY);
                w.word(*id);
            }
            Event::Now(now) => {
                w.byte(NOW);
                w.signed(now.wrapping_sub(self.now) as i64);
                self.now = *now;
            }
            Event::Random(number) => {
                w.byte(RANDOM);
                number
                    .to_le_bytes()
                    .into_iter()
                    .for_each(|byte| w.byte(byte));
            }
            Event::Read(value) => {
                w.byte(READ);
                w.word(*value);
            }
            Event::MayRun { slot, cpu, yes } => {
                w.byte(MAY_RUN | u8::from(*yes));
                w.word(u64::from(*slot));
                w.signed(i64::from(*cpu));
            }
            Event::Cpu { question, cpu, yes } => {
                let tag = match question {
                    Question::Online => ONLINE,
                    Question::Idle => IDLE,
                    Question::Claim => CLAIM,
                };
                w.byte(tag | u8::from(*yes));
                w.signed(i64::from(*cpu));
            }
            Event::AnyIdle(yes) => w.byte(ANY_IDLE | u8::from(*yes)),
            Event::ArmTimer(after) => {
                w.byte(ARM_TIMER);
                w.word(*after);
            }
            Event::CancelTimer => w.byte(CANCEL_TIMER),
            Event::NoMemory { after } => {
                w.byte(NO_MEMORY);
                w.word(*after);
            }
            Event::Dropped(token) => {
                w.byte(DROPPED);
                w.word(*token);
            }
            Event::Reply {
                slot,
                reply,
                answer,
            } => {
                w.byte(REPLY);
                w.word(u64::from(*slot));
                w.byte(*answer);
                Self::hint(reply, w);
            }
            Event::End { stamp } => {
                w.byte(END);
                self.stamp(*stamp, w);
            }
        }
        w.at
    }

    /// Reads the event at the beginning of the bytes, and returns it with its length. Does not
    /// panic for any bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(Event, usize), Malformed> {
        let r = &mut Reader { bytes, at: 0 };
        let tag = r.byte()?;
        let yes = tag & 1 != 0;
        let cpu = |r: &mut Reader<'_>, question| {
            Ok(Event::Cpu {
                question,
                cpu: r.cpu()?,
                yes,
            })
        };
        let event = match tag {
            1..RETURN => Event::Call(self.read_call(tag, r)?),
            RETURN | RETURN_WITH => Event::Return(self.read_answer(tag, r)?),
            ABANDONED => Event::Abandoned {
                stamp: self.read_stamp(r)?,
                kind: r.byte()?,
            },
            LOCK_AGAIN => Event::Lock {
                stamp: self.read_stamp(r)?,
                id: self.lock,
            },
            LOCK => {
                let (stamp, id) = (self.read_stamp(r)?, r.word()?);
                self.lock = id;
                Event::Lock { stamp, id }
            }
            BUSY => Event::Busy { id: r.word()? },
            NOW => {
                self.now = self.now.wrapping_add(r.signed()? as u64);
                Event::Now(self.now)
            }
            RANDOM => {
                let mut number = [0; 8];
                for byte in &mut number {
                    *byte = r.byte()?;
                }
                Event::Random(u64::from_le_bytes(number))
            }
            READ => Event::Read(r.word()?),
            ARM_TIMER => Event::ArmTimer(r.word()?),
            CANCEL_TIMER => Event::CancelTimer,
            NO_MEMORY => Event::NoMemory { after: r.word()? },
            DROPPED => Event::Dropped(r.word()?),
            REPLY => Event::Reply {
                slot: r.small()?,
                answer: r.byte()?,
                reply: Self::read_hint(0, r)?,
            },
            END => Event::End {
                stamp: self.read_stamp(r)?,
            },
            _ => match tag & !1 {
                ANY_IDLE => Event::AnyIdle(yes),
                MAY_RUN => Event::MayRun {
                    slot: r.small()?,
                    cpu: r.cpu()?,
                    yes,
                },
                ONLINE => cpu(r, Question::Online)?,
                IDLE => cpu(r, Question::Idle)?,
                CLAIM => cpu(r, Question::Claim)?,
                _ => return Err(Malformed),
            },
        };
        Ok((event, r.at))
    }

    fn read_stamp(&mut self, r: &mut Reader<'_>) -> Result<u64, Malformed> {
        self.stamp = self.stamp.wrapping_add(r.word()?);
        Ok(self.stamp)
    }

    fn read_task(
        &mut self,
        bits: u8,
        ctx_cpu: i32,
        r: &mut Reader<'_>,
    ) -> Result<BatonTask, Malformed> {
        if bits & TASK == 0 {
            return Err(Malformed);
        }
        let slot: u32 = r.small()?;
        let memory = &mut self.tasks[slot as usize % TASKS];
        if bits & KNOWN == 0 {
            let (pid, nice) = (r.small()?, r.cpu()?);
            *memory = Remembered {
                slot: slot.wrapping_add(1),
                pid,
                nice,
                ..Remembered::default()
            };
        } else if memory.slot != slot.wrapping_add(1) {
            return Err(Malformed);
        }
        let cpu = if bits & TASK_CPU == 0 {
            ctx_cpu
        } else {
            r.cpu()?
        };
        memory.runtime = memory.runtime.wrapping_add(r.word()?);
        Ok(BatonTask {
            slot,
            pid: memory.pid,
            cpu,
            nice: memory.nice,
            runtime: memory.runtime,
        })
    }

    fn read_call(&mut self, method: u8, r: &mut Reader<'_>) -> Result<Call, Malformed> {
        let shape = Shape::of(method).ok_or(Malformed)?;
        let bits = r.byte()?;
        let stamp = self.read_stamp(r)?;
        if bits & COARSE != 0 {
            self.coarse = self.coarse.wrapping_add(r.word()?);
        }
        let cpu = if bits & OTHER_CPU == 0 {
            self.cpu
        } else {
            r.cpu()?
        };
        let flags = if bits & FLAGS == 0 { 0 } else { r.small()? };
        let carried = if bits & CARRIED == 0 {
            Carried::default()
        } else {
            Self::read_carried(r)?
        };
        let about = match shape {
            Shape::Waking => {
                let task = self.read_task(bits, cpu, r)?;
                let (prev_cpu, waker_cpu) = (r.cpu()?, r.cpu()?);
                About::Waking(
                    task,
                    BatonWake {
                        prev_cpu,
                        waker_cpu,
                        flags: r.small()?,
                    },
                )
            }
            Shape::Given => {
                let task = self.read_task(bits, cpu, r)?;
                let token = match bits & OWN_TOKEN {
                    0 => r.word()?,
                    _ => u64::from(r.small::<u32>()?) << 32 | u64::from(task.slot.wrapping_add(1)),
                };
                About::Given(task, token)
            }
            Shape::Task => About::Task(self.read_task(bits, cpu, r)?),
            Shape::Pick => {
                let which = r.cpu()?;
                About::Pick(
                    which,
                    if bits & TASK == 0 {
                        None
                    } else {
                        Some(self.read_task(bits, cpu, r)?)
                    },
                )
            }
            Shape::Cpu => About::Cpu(r.cpu()?),
            Shape::Refused => About::Refused(r.word()?, r.byte()?),
            Shape::Hint => {
                let (task, thread) = (self.read_task(bits, cpu, r)?, r.small()?);
                About::Hint(task, Self::read_hint(thread, r)?)
            }
        };
        Ok(Call {
            stamp,
            method,
            now: self.coarse,
            cpu,
            flags,
            carried,
            about,
        })
    }

    fn read_hint(thread: u32, r: &mut Reader<'_>) -> Result<BatonHint, Malformed> {
        let mut hint = BatonHint {
            tag: r.small()?,
            thread,
            ..BatonHint::default()
        };
        let count = usize::from(r.byte()?);
        for word in hint.words.get_mut(..count).ok_or(Malformed)? {
            *word = r.word()?;
        }
        Ok(hint)
    }

    fn read_answer(&mut self, tag: u8, r: &mut Reader<'_>) -> Result<Return, Malformed> {
        let mut end = Return {
            stamp: self.read_stamp(r)?,
            answer: 0,
            carried: Carried::default(),
        };
        if tag == RETURN_WITH {
            end.answer = u64::from(r.small::<u32>()?) | u64::from(r.small::<u32>()?) << 32;
            end.carried = Self::read_carried(r)?;
        }
        Ok(end)
    }

    fn read_carried(r: &mut Reader<'_>) -> Result<Carried, Malformed> {
        let mut carried = Carried {
            slice: r.word()?,
            nr_kicks: u16::from(r.byte()?),
            kicks: [0; BATON_MAX_KICKS],
        };
        for kick in carried
            .kicks
            .get_mut(..usize::from(carried.nr_kicks))
            .ok_or(Malformed)?
        {
            *kick = r.small()?;
        }
        Ok(carried)
    }
}
