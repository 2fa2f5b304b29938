// SPDX-License-Identifier: GPL-2.0-only
//! Hints: what a policy gets from arbitrary contents of an application's ring.

use crate::host::{fifo, new_core, new_task, register, start, Call, TestCore};
use baton_abi::{
    BatonCtx, BatonFaultKind, BatonHint, BatonHintAnswer, BatonMethod, BATON_F_WAKEUP,
    BATON_HINTS_AT_ONCE,
};
use baton_core::{plain_ctx, Drained, PolicyEntry, Slot};
use baton_message::{
    message,
    ring::{is_unread, put, Entry, Full},
    Message, Raw, Thread,
};
use std::sync::{
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    Arc, Mutex,
};
use std::time::{Duration, Instant};

message! {
    enum Hint, version 1 {
        Number { number: u64 } = 1,
        Of { thread: Thread, small: u8 } = 2,
        Fail {} = 3,
    }
}

/// The hints that a policy got, each with the slot of its sender.
type Heard = Arc<Mutex<Vec<(u32, Hint)>>>;

/// A policy with one queue that records hints, as the bridge reads them.
fn policy(heard: &Heard) -> Arc<dyn Fn(&mut Call<'_>) -> u64 + Send + Sync> {
    let (heard, queue) = (heard.clone(), Mutex::new(Vec::new()));
    Arc::new(move |call| {
        if call.method != BatonMethod::Hint {
            return fifo(call, &queue);
        }
        match Hint::decode(&call.hint.unwrap()) {
            None => 1,
            Some(Hint::Fail {}) => call.abort(BatonFaultKind::Panic),
            Some(hint) => {
                heard.lock().unwrap().push((call.task.unwrap().slot, hint));
                0
            }
        }
    })
}

struct Machine {
    core: &'static TestCore,
    policy: &'static PolicyEntry,
    heard: Heard,
    /// Handles, by thread id less one. The first two tasks are of one process, the third of another
    /// process, the fourth of another policy.
    tasks: Vec<u64>,
}

impl Machine {
    fn new() -> Self {
        let core = new_core(8, 2, true);
        let heard = Heard::default();
        let (entry, other) = (register(core), register(core));
        start(core, entry, policy(&heard));
        start(core, other, policy(&Heard::default()));
        core.set_default(Some(entry));
        let tasks: Vec<u64> = (1..=4).map(|pid| new_task(core, pid, 0).unwrap()).collect();
        core.assign(core.by_handle(tasks[3]).unwrap(), Some(other));
        for handle in &tasks {
            let mut ctx = BatonCtx {
                task: *handle,
                flags: BATON_F_WAKEUP,
                ..plain_ctx(1)
            };
            core.enqueue(0, core.cpu(0).unwrap(), &mut ctx);
        }
        Self {
            core,
            policy: entry,
            heard,
            tasks,
        }
    }

    fn sender(&self) -> &'static Slot {
        self.core.by_handle(self.tasks[0]).unwrap()
    }

    /// Finds a thread of the sender's process, or a task of another policy that the host takes for
    /// one.
    fn thread_of(&self) -> impl Fn(u32) -> u64 + '_ {
        |id| match id {
            1 | 2 | 4 => self.tasks[id as usize - 1],
            _ => 0,
        }
    }

    fn drain(&self, ring: &[Entry], place: &mut u64) -> Drained {
        let (core, cpu) = (self.core, self.core.cpu(1).unwrap());
        core.drain(
            1,
            cpu,
            &mut plain_ctx(2),
            self.sender(),
            self.policy,
            (ring, place),
            self.thread_of(),
        )
    }

    fn send(&self, from: usize, hint: &BatonHint) -> BatonHintAnswer {
        let (core, cpu) = (self.core, self.core.cpu(1).unwrap());
        let from = core.by_handle(self.tasks[from]).unwrap();
        core.hint(
            1,
            cpu,
            &mut plain_ctx(2),
            from,
            self.policy,
            hint,
            self.thread_of(),
        )
    }

    /// Slots of the tasks that the sender may name.
    fn mine(&self) -> Vec<u32> {
        self.tasks[..2]
            .iter()
            .map(|task| self.core.by_handle(*task).unwrap().index())
            .collect()
    }

    fn take_heard(&self) -> Vec<(u32, Hint)> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

fn ring(entries: usize) -> Vec<Entry> {
    (0..entries).map(|_| Entry::default()).collect()
}

#[test]
fn hints_come_in_order_and_so_many_at_once() {
    let (machine, ring) = (Machine::new(), ring(32));
    let (mut to, mut from) = (0, 0);
    for number in 0..20 {
        put(&ring, &mut to, &Hint::Number { number }.encode()).unwrap();
    }
    assert_eq!(
        machine.drain(&ring, &mut from),
        Drained {
            taken: BATON_HINTS_AT_ONCE,
            refused: 0
        }
    );
    assert_eq!(
        machine.drain(&ring, &mut from),
        Drained {
            taken: 4,
            refused: 0
        }
    );
    let slot = machine.sender().index();
    let expected: Vec<_> = (0..20)
        .map(|number| (slot, Hint::Number { number }))
        .collect();
    assert_eq!(machine.take_heard(), expected);
}

#[test]
fn what_is_refused_and_why() {
    let machine = Machine::new();
    let of = |id: u32| {
        Hint::Of {
            thread: Thread::of_id(id),
            small: 1,
        }
        .encode()
    };
    assert_eq!(machine.send(0, &of(2)), BatonHintAnswer::Taken);
    let named = machine.core.by_handle(machine.tasks[1]).unwrap().index();
    let sender = machine.sender().index();
    assert_eq!(
        machine.take_heard(),
        [(
            sender,
            Hint::Of {
                thread: Thread::of_id(named + 1),
                small: 1
            }
        )]
    );
    assert_eq!(
        machine.send(0, &of(3)),
        BatonHintAnswer::Thread,
        "of another process"
    );
    assert_eq!(
        machine.send(0, &of(4)),
        BatonHintAnswer::Thread,
        "another policy's"
    );
    assert_eq!(
        machine.send(0, &of(77)),
        BatonHintAnswer::Thread,
        "of no task"
    );
    assert_eq!(
        machine.send(
            0,
            &BatonHint {
                tag: 9,
                ..BatonHint::default()
            }
        ),
        BatonHintAnswer::Malformed
    );
    assert_eq!(
        machine.send(3, &Hint::Number { number: 1 }.encode()),
        BatonHintAnswer::NotMember
    );
    assert_eq!(machine.take_heard(), []);
    assert_eq!(
        machine.send(0, &Hint::Fail {}.encode()),
        BatonHintAnswer::Stopped
    );
    let (policy, fault) = machine.core.host().reports.lock().unwrap()[0];
    assert_eq!(
        (policy, fault.kind, fault.method),
        (
            machine.policy.index(),
            BatonFaultKind::Panic,
            BatonMethod::Hint
        )
    );
    assert_eq!(
        machine.send(0, &Hint::Number { number: 1 }.encode()),
        BatonHintAnswer::Stopped
    );
}

#[test]
fn hints_of_one_who_is_not_there_stay() {
    let (machine, ring) = (Machine::new(), ring(16));
    let (mut to, mut from) = (0, 0);
    put(&ring, &mut to, &Hint::Number { number: 5 }.encode()).unwrap();
    let mut ctx = BatonCtx {
        task: machine.tasks[0],
        ..plain_ctx(3)
    };
    machine
        .core
        .disable_task(0, machine.core.cpu(0).unwrap(), &mut ctx, false);
    assert_eq!(machine.drain(&ring, &mut from), Drained::default());
    machine.core.enable_task(machine.tasks[0], 0);
    let mut ctx = BatonCtx {
        task: machine.tasks[0],
        flags: BATON_F_WAKEUP,
        ..plain_ctx(4)
    };
    machine
        .core
        .enqueue(0, machine.core.cpu(0).unwrap(), &mut ctx);
    assert_eq!(
        machine.drain(&ring, &mut from),
        Drained {
            taken: 1,
            refused: 0
        }
    );
}

/// xorshift64
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Numbers of entries of the rings, and the positions at which they begin. One of them reaches the
/// point where sequences of 32 bits wrap.
const RINGS: [(usize, u64); 3] = [(16, 0), (32, (32 << 31) - 100), (64, 0)];

/// Minimum number of ring states to try.
fn states() -> u64 {
    std::env::var("BATON_FUZZ")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000_000)
}

/// For any contents of the ring, the host advances by one for each hint that it takes, and by 16 at
/// most. It changes the sequences of those entries and nothing else. The policy gets hints of its
/// type only, and each names a task of its own that the sender may name.
#[test]
fn hostile_rings() {
    let machine = Machine::new();
    let (sender, mine) = (machine.sender().index(), machine.mine());
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (mut taken, mut refused, mut heard) = (0, 0, 0);
    for (entries, start) in RINGS {
        let ring = ring(entries);
        let mut place = start;
        for _ in 0..states().div_ceil(RINGS.len() as u64) {
            for _ in 0..chance.below(20) {
                scribble(&ring, place, &mut chance);
            }
            let before: Vec<_> = ring.iter().map(Entry::all_words).collect();
            let from = place;
            let drained = machine.drain(&ring, &mut place);
            assert!(
                drained.taken <= BATON_HINTS_AT_ONCE && place == from + u64::from(drained.taken)
            );
            for (number, (entry, before)) in ring.iter().zip(before).enumerate() {
                let after = entry.all_words();
                let is_taken = (from..place).any(|at| at as usize % entries == number);
                assert_eq!((after.1, after.2), (before.1, before.2));
                assert!(is_taken || after.0 == before.0);
            }
            let got = machine.take_heard();
            assert_eq!(got.len() as u32, drained.taken - drained.refused);
            for (from, hint) in &got {
                assert_eq!(*from, sender);
                if let Hint::Of { thread, .. } = hint {
                    assert!(mine.contains(&thread.slot()), "{hint:?}");
                }
            }
            taken += drained.taken;
            refused += drained.refused;
            heard += got.len();
        }
    }
    // The contents were not all invalid.
    assert!(
        taken > 1_000 && refused > 100 && heard > 100,
        "{taken} taken, {refused} refused, {heard} heard"
    );
    assert!(machine.policy.is_running());
}

/// For any contents of a reply ring, the host writes a reply at its position if the sequence there
/// permits it, and nothing else. It reads one sequence to see whether the last reply was read.
#[test]
fn hostile_replies() {
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let (mut sent, mut full, mut unread) = (0, 0, 0);
    for (entries, start) in RINGS {
        let ring = ring(entries);
        let sequence = |place: u64| ((place / entries as u64) as u32).wrapping_mul(2);
        let mut place = start;
        for _ in 0..states().div_ceil(RINGS.len() as u64) {
            for _ in 0..chance.below(4) {
                scribble(&ring, place, &mut chance);
            }
            // The reader has finished the previous lap.
            if chance.below(2) == 0 {
                let (_, small, words) = ring[place as usize % entries].all_words();
                ring[place as usize % entries].scribble(sequence(place), small, words);
            }
            let before: Vec<_> = ring.iter().map(Entry::all_words).collect();
            let last = place.checked_sub(1);
            let is_last_there = last
                .is_some_and(|at| before[at as usize % entries].0 == sequence(at).wrapping_add(1));
            assert_eq!(is_unread(&ring, place), is_last_there);
            unread += u64::from(is_last_there);

            let reply = Raw {
                tag: chance.next() as u32,
                thread: 0,
                words: std::array::from_fn(|_| chance.next()),
            };
            let (from, mut expected) = (place, before);
            let entry = &mut expected[from as usize % entries];
            let answer = put(&ring, &mut place, &reply);
            if entry.0 == sequence(from) {
                *entry = (
                    sequence(from).wrapping_add(1),
                    [reply.tag, reply.thread, entry.1[2]],
                    reply.words,
                );
                assert_eq!((answer, place), (Ok(()), from + 1));
                sent += 1;
            } else {
                assert_eq!((answer, place), (Err(Full), from));
                full += 1;
            }
            assert_eq!(
                ring.iter().map(Entry::all_words).collect::<Vec<_>>(),
                expected
            );
        }
    }
    assert!(sent + full >= states());
    assert!(
        sent > 1_000 && full > 1_000 && unread > 1_000,
        "{sent} sent, {full} times full, {unread} times unread"
    );
}

/// Another thread writes into both rings while the host reads hints and writes replies. The policy
/// gets the data that was checked.
#[test]
fn hostile_while_the_host_looks() {
    const ENTRIES: usize = 16;
    let machine = Machine::new();
    let (sender, mine) = (machine.sender().index(), machine.mine());
    let (hints, replies) = (ring(ENTRIES), ring(ENTRIES));
    // The host's positions in the rings, as for a client that guesses them.
    let (at_hint, at_reply, stop) = (
        AtomicU64::new(0),
        AtomicU64::new(ENTRIES as u64),
        AtomicBool::new(false),
    );
    let (mut place, mut next_reply) = (0, ENTRIES as u64);
    let (mut heard, mut sent, mut meanwhile) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
            while !stop.load(Relaxed) {
                scribble(&hints, at_hint.load(Relaxed), &mut chance);
                scribble(
                    &replies,
                    at_reply.load(Relaxed) - ENTRIES as u64,
                    &mut chance,
                );
            }
        });
        // Stops the other thread even if an assertion fails.
        let _stop = Stop(&stop);
        // On a busy machine, where the two threads seldom run at once, there are fewer rounds.
        let end = Instant::now() + Duration::from_secs(120);
        while (heard < 10_000 || sent < 10_000 || meanwhile < 10_000) && Instant::now() < end {
            let before: Vec<_> = hints.iter().map(Entry::all_words).collect();
            let from = place;
            let drained = machine.drain(&hints, &mut place);
            at_hint.store(place, Relaxed);
            assert!(
                drained.taken <= BATON_HINTS_AT_ONCE && place == from + u64::from(drained.taken)
            );
            // The host changes sequences only.
            meanwhile += u64::from(
                hints
                    .iter()
                    .zip(before)
                    .any(|(entry, before)| entry.all_words().2 != before.2),
            );
            let got = machine.take_heard();
            assert_eq!(got.len() as u32, drained.taken - drained.refused);
            heard += got.len();
            for (from, hint) in &got {
                assert_eq!(*from, sender);
                if let Hint::Of { thread, .. } = hint {
                    assert!(mine.contains(&thread.slot()), "{hint:?}");
                }
            }
            let from = next_reply;
            let answer = put(
                &replies,
                &mut next_reply,
                &Hint::Number { number: from }.encode(),
            );
            assert_eq!(next_reply, from + u64::from(answer.is_ok()));
            sent += u64::from(answer.is_ok());
            at_reply.store(next_reply, Relaxed);
        }
    });
    let is_enough = heard >= 100 && sent >= 100 && meanwhile >= 100;
    assert!(
        is_enough,
        "{heard} hints heard, {sent} replies sent, {meanwhile} times written meanwhile"
    );
    assert!(machine.policy.is_running());
}

/// Stops another thread on drop.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Writes into the ring, often where the host reads next, and often a plausible hint.
fn scribble(ring: &[Entry], place: u64, chance: &mut Chance) {
    let count = ring.len() as u64;
    let at = if chance.below(2) == 0 {
        place + chance.below(18)
    } else {
        chance.next() >> 1
    };
    let ready = ((at / count) as u32).wrapping_mul(2).wrapping_add(1);
    let sequence = match chance.below(4) {
        0 | 1 => ready,
        2 => ready.wrapping_add(chance.below(5) as u32).wrapping_sub(2),
        _ => chance.next() as u32,
    };
    let tag = if chance.below(3) == 0 {
        chance.next() as u32
    } else {
        1 + chance.below(2) as u32
    };
    let thread = if chance.below(3) == 0 {
        chance.next() as u32
    } else {
        chance.below(6) as u32
    };
    let mut words = [0; 6];
    for _ in 0..chance.below(3) {
        words[chance.below(3) as usize] = chance.next() >> chance.below(64);
    }
    let reserved = if chance.below(2) == 0 {
        0
    } else {
        chance.next() as u32
    };
    ring[(at % count) as usize].scribble(sequence, [tag, thread, reserved], words);
}
