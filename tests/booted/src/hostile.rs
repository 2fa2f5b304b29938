// SPDX-License-Identifier: GPL-2.0-only
//! Hostile clients of hint queues: garbage in the mapped memory, valid hints with harmful intent,
//! and processes that are killed, fork, or execute another program meanwhile.

use crate::{
    chance::Chance,
    hints::{self, heard, ping, start, this_thread, Echo, Wild, A_WHILE},
    tool::{baton, check, hackbench, is_well, unload_everything},
    Case,
};
use baton_abi::BatonAttributeTag;
use baton_hints::{Message, Queue, Raw, Thread, Type};
use baton_message::attributes::{Attributes, AttributesReply};
use echo::Reply;
use std::{
    io::Read,
    os::unix::process::CommandExt,
    process::{self, Command},
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

pub fn cases() -> Vec<Case> {
    vec![case!("hints: hostile clients", hostile(3))]
}

/// Concurrently attacking threads of a process.
const ATTACKERS: u32 = 3;
const ENTRIES: usize = 16;
/// Words in a cache line: the size of an entry, and of the head.
const LINE: usize = 16;
/// The word of the head in which the host counts refusals. Attackers do not write it, as it proves
/// that hints reach the host.
const REFUSED: usize = 2;

/// The host's results for hints that attackers of this process sent.
#[derive(Default)]
struct Counts {
    /// Refusals of garbage; answers to valid hints.
    answered: AtomicU64,
    /// Hints taken by a call.
    called: AtomicU64,
}

/// Called repeatedly while a queue is open; returns whether the attack is over.
type Over<'a> = &'a (dyn Fn() -> bool + Sync);

/// The work of an ordinary client.
type Ordinary = fn() -> Result<(), String>;

/// Attacks the policies, one after the other, for this many seconds in all, under load. An ordinary
/// client must work afterwards.
pub fn hostile(seconds: u64) -> Result<(), String> {
    let policies: [(_, _, Ordinary); 3] = [
        ("echo", 3, ordinary_of_echo),
        ("arbiter", 1, ordinary_of_arbiter),
        ("locality", 1, ordinary_of_locality),
    ];
    for (policy, fifths, ordinary) in policies {
        unload_everything()?;
        baton(&["load", policy, "--all"])?;
        under_attack(policy, Duration::from_secs(seconds) * fifths / 5)
            .map_err(|why| format!("{policy}: {why}"))?;
        // From a thread that has sent no hint yet.
        let said = thread::spawn(ordinary)
            .join()
            .map_err(|_| "a thread panicked".to_owned())?;
        said.map_err(|why| format!("{policy}, later: {why}"))?;
        is_well(policy)?;
    }
    Ok(())
}

/// Attacks the attributes of `cfs_c` for this many seconds under load. The tool must work
/// afterwards.
pub fn attributes(seconds: u64) -> Result<(), String> {
    baton(&["load", "cfs_c", "--all"])?;
    under_attack("cfs_c", Duration::from_secs(seconds))?;
    let own = process::id().to_string();
    baton(&["attr", "set", "-p", "cfs_c", "--pid", &own, "slice=1ms"])?;
    is_well("cfs_c")
}

fn under_attack(policy: &'static str, time: Duration) -> Result<(), String> {
    let (counts, stop) = (&Counts::default(), &AtomicBool::new(false));
    let over: Over = &|| stop.load(Relaxed);
    thread::scope(|scope| {
        let mut threads = vec![
            scope.spawn(|| while_not(over, || hackbench(1, 20))),
            scope.spawn(|| {
                let mut chance = Chance::of(0);
                while_not(over, || killed(policy, &mut chance))
            }),
        ];
        threads.extend(
            (1..=ATTACKERS).map(|seed| scope.spawn(move || attack(policy, seed, counts, over))),
        );
        let watched = watch(policy, time, counts);
        stop.store(true, Relaxed);
        let ended = threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?);
        ended.and(watched)
    })
}

fn while_not(over: Over, mut work: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    while !over() {
        work()?;
    }
    Ok(())
}

/// Checks that in each part of the time attacks reach the host and the policy: hints are refused or
/// answered, and others are taken.
fn watch(policy: &str, time: Duration, counts: &Counts) -> Result<(), String> {
    let mut queue = if policy == "echo" {
        Some(hints::open()?)
    } else {
        None
    };
    let mut reached = |part: u32| {
        let called = counts.called.load(Relaxed);
        // The hints that echo received came from rings, except for one that each attacker sends at
        // its end, and this one.
        let taken = queue
            .as_mut()
            .map_or(Ok(called), |queue| heard(queue, part.into()))?;
        Ok::<_, String>([taken, counts.answered.load(Relaxed)])
    };
    let parts = (time.as_secs() as u32).clamp(1, 10);
    let mut before = reached(0)?;
    for part in 1..=parts {
        thread::sleep(time / parts);
        let now = reached(part)?;
        let grew = now
            .iter()
            .zip(before)
            .all(|(now, before)| *now > before + 2 * u64::from(ATTACKERS));
        check(grew, || {
            format!(
                "in part {part} of {parts} attacks do not reach the host: taken and answered \
                 {before:?}, then {now:?}"
            )
        })?;
        before = now;
    }
    Ok(())
}

/// Attacks with one queue after the other, each opened by a thread of its own.
fn attack(policy: &str, seed: u32, counts: &Counts, over: Over) -> Result<(), String> {
    let mut chance = Chance::of(seed);
    while !over() {
        let chance = Chance::of(chance.next());
        thread::scope(|scope| {
            let attacker = scope.spawn(|| match policy {
                "arbiter" => disturb::<_, arbiter::Reply>(policy, of_arbiter, chance, counts, over),
                "locality" => {
                    disturb::<_, locality::Reply>(policy, of_locality, chance, counts, over)
                }
                "cfs_c" => {
                    disturb::<_, AttributesReply>(policy, of_attributes, chance, counts, over)
                }
                _ => garbage(chance, counts, over),
            });
            attacker
                .join()
                .map_err(|_| "a thread panicked".to_owned())?
        })?;
    }
    Ok(())
}

/// Writes garbage into a queue while the policy reads and writes it, from the queue's thread and
/// another.
fn garbage(mut chance: Chance, counts: &Counts, over: Over) -> Result<(), String> {
    let mut queue =
        Queue::<Wild, Reply>::open("echo", ENTRIES as u32).map_err(|e| e.to_string())?;
    let (mut refused, place, done) = (0, &AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (memory, done, mut other) = (queue.memory(), &done, Chance::of(chance.next()));
        scope.spawn(move || {
            while !done.load(Relaxed) {
                (0..32).for_each(|_| scribble(memory, place, &mut other));
                thread::sleep(Duration::from_micros(50));
            }
        });
        for _ in 0..400 {
            (0..chance.below(20)).for_each(|_| scribble(memory, place, &mut chance));
            match chance.below(16) {
                0 => thread::sleep(Duration::from_micros(100)),
                1 => thread::yield_now(),
                _ => {
                    let (tag, thread) = (
                        chance.next() % 4,
                        // The superuser may name threads of any process, so others are none.
                        [0, process::id(), 4_000_000 + chance.next() % 400][chance.below(3)],
                    );
                    let words =
                        std::array::from_fn(|_| u64::from(chance.next()) << chance.below(33));
                    let _ = queue.send_now(&Wild(Raw { tag, thread, words }));
                }
            }
            let before = std::mem::replace(&mut refused, queue.refused());
            counts
                .answered
                .fetch_add(u64::from(refused - before), Relaxed);
            if over() {
                break;
            }
        }
        done.store(true, Relaxed);
    });
    let _ = queue.wait(Duration::from_millis(1));
    // The rings are corrupt, but a call still reaches the policy.
    if over() {
        let said = queue.send_now(&Wild(ping(1).encode()));
        check(said == Ok(()), || {
            format!("a right hint after all that: {said:?}")
        })?;
    }
    Ok(())
}

/// Writes one value that the host may mishandle. `place` is the host's presumed position in the
/// ring of hints. The host accepts a single sequence there, and advances when it has found it.
/// Sequences are therefore written near that one, and near the values of other entries.
fn scribble(memory: &[AtomicU32], place: &AtomicU32, chance: &mut Chance) {
    let line = chance.below(1 + 2 * ENTRIES) * LINE;
    let sequence = &memory[line];
    match chance.below(16) {
        0..4 if line > 0 => {
            let Raw { tag, thread, words } = ping(chance.next().into()).encode();
            let halves = words
                .iter()
                .flat_map(|word| [*word as u32, (*word >> 32) as u32]);
            let all = [tag, thread, 0].into_iter().chain(halves);
            memory[line + 1..]
                .iter()
                .zip(all)
                .for_each(|(place, word)| place.store(word, Relaxed));
        }
        4..8 => {
            let at = place.load(Relaxed);
            let (sequence, believed) = (
                &memory[(1 + at as usize % ENTRIES) * LINE],
                at / ENTRIES as u32 * 2 + 1,
            );
            if sequence.load(SeqCst) == believed + 1 {
                place.store(at + 1, Relaxed);
            } else {
                // A value that the host would not write.
                let near = [-2, -1, 0, 2][chance.below(4)];
                sequence.store(believed.wrapping_add_signed(near), SeqCst);
            }
        }
        8..12 if line > 0 => {
            let near = sequence
                .load(Relaxed)
                .wrapping_add(chance.next() % 5)
                .wrapping_sub(2);
            sequence.store(near, SeqCst);
        }
        12 => {
            let before = sequence.swap(chance.next(), SeqCst);
            // Otherwise the value stays until a write near the host's position.
            if chance.below(64) > 0 {
                sequence.store(before, SeqCst);
            }
        }
        _ => {
            let at = chance.below(memory.len());
            if !at.is_multiple_of(LINE) && at != REFUSED {
                memory[at].store(chance.next(), Relaxed);
            }
        }
    }
}

/// Sends valid hints to a policy, by the ring and by calls.
fn disturb<H: Message, R: Message>(
    policy: &str,
    hint: fn(&mut Chance) -> H,
    mut chance: Chance,
    counts: &Counts,
    over: Over,
) -> Result<(), String> {
    let mut queue = Queue::<H, R>::open(policy, ENTRIES as u32).map_err(|e| e.to_string())?;
    for _ in 0..200 {
        for _ in 0..chance.below(20) {
            let _ = queue.send(&hint(&mut chance));
        }
        match chance.below(16) {
            0 => thread::sleep(Duration::from_micros(100)),
            1 => thread::yield_now(),
            _ => {
                let said = queue.send_now(&hint(&mut chance));
                counts.called.fetch_add(u64::from(said.is_ok()), Relaxed);
            }
        }
        while chance.below(4) > 0 && queue.receive().is_some() {
            counts.answered.fetch_add(1, Relaxed);
        }
        if over() {
            break;
        }
    }
    Ok(())
}

/// Names the sender, or its process.
fn either(chance: &mut Chance) -> Thread {
    if chance.below(2) == 0 {
        this_thread()
    } else {
        Thread::of_id(process::id())
    }
}

fn of_arbiter(chance: &mut Chance) -> arbiter::Hint {
    match chance.below(4) {
        0 => arbiter::Hint::Join {
            leader: either(chance),
        },
        1 => arbiter::Hint::Park {},
        _ => {
            let cores = [0, 1, 2, 64, u32::MAX][chance.below(5)];
            arbiter::Hint::Request {
                level: chance.below(arbiter::LEVELS + 1) as u8,
                cores,
            }
        }
    }
}

/// Anything that looks like a request about attributes.
#[derive(Clone, Copy)]
struct Request(Raw);

impl Message for Request {
    const TYPE: Type = Attributes::TYPE;
    const THREADS: usize = Attributes::THREADS;

    fn encode(&self) -> Raw {
        self.0
    }

    fn decode(raw: &Raw) -> Option<Self> {
        Some(Self(*raw))
    }
}

/// Half of them can be right; in the others each word is anything.
fn of_attributes(chance: &mut Chance) -> Request {
    let value = |chance: &mut Chance| u64::from(chance.next()) << chance.below(40);
    let thread = [0, process::id(), chance.next() % 400][chance.below(3)];
    let mut raw = Raw {
        tag: chance.next() % 5,
        thread: if chance.below(2) == 0 {
            process::id()
        } else {
            thread
        },
        words: [0; 6],
    };
    if chance.below(2) == 0 {
        raw.words = std::array::from_fn(|_| value(chance));
    } else if raw.tag == BatonAttributeTag::Set as u32 {
        raw.words[0] = 1;
        raw.words[1] = value(chance) % 100_000_001;
    }
    Request(raw)
}

/// Uses more groups than the policy's limit.
fn of_locality(chance: &mut Chance) -> locality::Hint {
    locality::Hint::Group {
        thread: either(chance),
        group: chance.next() % 1_000,
    }
}

/// Runs a process that attacks until it is killed.
fn killed(policy: &str, chance: &mut Chance) -> Result<(), String> {
    let mut child = start(&["hostile", policy], 0)?;
    thread::sleep(Duration::from_millis(50 + chance.below(400) as u64));
    let ended = child.try_wait().map_err(|e| e.to_string())?;
    child.kill().map_err(|e| e.to_string())?;
    child.wait().map_err(|e| e.to_string())?;
    let mut said = String::new();
    let _ = child
        .stdout
        .take()
        .map(|mut stdout| stdout.read_to_string(&mut said));
    check(ended.is_none(), || {
        format!("an attacker ended by itself: {ended:?}, {said}")
    })
}

/// The attacking process: it forks, and executes itself again in the middle of an attack.
pub fn without_end(policy: &str) -> Result<(), String> {
    let (begin, counts) = (Instant::now(), Counts::default());
    let anew = || begin.elapsed() > Duration::from_millis(100) && exec(policy);
    thread::scope(|scope| {
        for seed in 1..=ATTACKERS {
            let counts = &counts;
            let over: Over = if seed == 1 { &anew } else { &|| false };
            scope.spawn(move || {
                // Printed here, not after the scope, which waits for the other threads: they do not
                // end.
                println!("{:?}", attack(policy, process::id() + seed, counts, over));
                process::exit(1);
            });
        }
        while_not(&|| false, || {
            Command::new("sh")
                .args(["-c", ":"])
                .status()
                .map(drop)
                .map_err(|e| e.to_string())
        })
    })
}

/// Returns only on failure.
fn exec(policy: &str) -> bool {
    println!(
        "{}",
        Command::new("/usr/bin/baton-booted")
            .args(["--hints", "hostile", policy])
            .exec()
    );
    true
}

fn ordinary_of_echo() -> Result<(), String> {
    let mut queue: Echo = hints::open()?;
    heard(&mut queue, 1).map(drop)
}

fn ordinary_of_arbiter() -> Result<(), String> {
    let mut queue =
        Queue::<arbiter::Hint, arbiter::Reply>::open("arbiter", 16).map_err(|e| e.to_string())?;
    for hint in [
        arbiter::Hint::Join {
            leader: this_thread(),
        },
        arbiter::Hint::Request { level: 0, cores: 1 },
    ] {
        queue.send_now(&hint).map_err(|e| e.to_string())?;
    }
    let reply = queue.wait(A_WHILE).map_err(|e| e.to_string())?;
    check(
        matches!(reply, Some(arbiter::Reply::Granted { .. })),
        || format!("who asks for a core is told {reply:?}"),
    )
}

fn ordinary_of_locality() -> Result<(), String> {
    let mut queue = Queue::<locality::Hint, locality::Reply>::open("locality", 16)
        .map_err(|e| e.to_string())?;
    queue
        .send_now(&locality::Hint::Group {
            thread: this_thread(),
            group: 1,
        })
        .map_err(|e| e.to_string())?;
    let reply = queue.receive();
    check(
        matches!(reply, Some(locality::Reply::Home { cpu: 0.. })),
        || format!("a task of a group gets the reply {reply:?}"),
    )
}
