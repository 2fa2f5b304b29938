// SPDX-License-Identifier: GPL-2.0-only
//! Hand-made recordings in which the calls of several CPUs are interleaved at locks. If the calls
//! were replayed one after the other, they would wait indefinitely.

use baton::{Ctx, Lock};
use baton_native::Policy;
use baton_replay::End;
use baton_trace::{
    About, Call, Carried, Checkpoint, Event, FileWriter, Header, Recorder, Recording, Return,
    BLOCK_SIZE, HEAD_SIZE,
};

use crate::simple::{simple, Twist};
use crate::{is_same, parse, run, SINGLE, THREADS};

const BALANCE: u8 = 12;
const ENTER_IDLE: u8 = 23;
const A: u64 = 70;
const B: u64 = 71;

/// Sums values in the order of their arrival, under two locks that are taken one after the other or
/// nested.
struct Sums {
    a: Lock<u64>,
    b: Lock<u64>,
}

impl Sums {
    fn turn(sum: &mut u64, by: u64) -> u64 {
        *sum = (*sum * 3 + by) % 1_000_003;
        *sum
    }
}

impl Twist for Sums {
    fn new() -> Self {
        Self {
            a: Lock::new(1),
            b: Lock::new(1),
        }
    }

    fn balance(&self, ctx: &Ctx<'_>) {
        let by = Self::turn(&mut self.a.lock(), 1);
        let sum = Self::turn(&mut self.b.lock(), by);
        ctx.arm_timer(1_000 + sum);
    }

    fn enter_idle(&self, ctx: &Ctx<'_>) {
        let mut a = self.a.lock();
        let mut b = self.b.lock();
        let by = Self::turn(&mut a, 2);
        let sum = Self::turn(&mut b, by);
        ctx.arm_timer(1_000 + sum);
    }
}

fn policy() -> Policy {
    simple!(Sums)
}

/// Writes the events of CPUs into a file with blocks of `size` bytes.
pub fn file(header: &Header, cpus: &[Vec<Event>], size: usize) -> Vec<u8> {
    file_from(header, None, &[], cpus, size)
}

/// As `file`, for a recording that begins with a state, and has checkpoints.
pub fn file_from(
    header: &Header,
    state: Option<&[u8]>,
    points: &[Checkpoint],
    cpus: &[Vec<Event>],
    size: usize,
) -> Vec<u8> {
    let mut out = FileWriter::new(Vec::new(), header).unwrap();
    state.iter().for_each(|state| out.state(0, state).unwrap());
    points
        .iter()
        .for_each(|point| out.state(point.stamp, &point.state).unwrap());
    for (cpu, events) in cpus.iter().enumerate() {
        let (mut recorder, mut block) = (Recorder::default(), vec![0; size]);
        let mut points = points.iter().peekable();
        recorder.open(cpu as u32, 0);
        for event in events {
            while let Some(point) =
                points.next_if(|point| event.stamp().is_some_and(|stamp| stamp > point.stamp))
            {
                if recorder.close(&mut block) {
                    out.block(&block, 0).unwrap();
                }
                recorder.open(cpu as u32, point.stamp);
            }
            if !recorder.put(&mut block, event) {
                assert!(recorder.close(&mut block));
                out.block(&block, 0).unwrap();
                recorder.open(cpu as u32, recorder.last_stamp());
                assert!(recorder.put(&mut block, event));
            }
        }
        if recorder.close(&mut block) {
            out.block(&block, 0).unwrap();
        }
    }
    std::mem::take(out.get_mut())
}

pub fn header(cpus: u32) -> Header {
    Header {
        policy: "simple".into(),
        cpus: (0..cpus).map(|cpu| (cpu, 0, 0, true)).collect(),
        max_tasks: 16,
        ..Header::default()
    }
}

fn call(stamp: u64, cpu: usize, method: u8) -> Event {
    let carried = Carried::default();
    let (now, cpu) = (stamp * 1_000, cpu as i32);
    Event::Call(Call {
        stamp,
        method,
        now,
        cpu,
        flags: 0,
        carried,
        about: About::Cpu(cpu),
    })
}

fn lock(stamp: u64, id: u64) -> Event {
    Event::Lock { stamp, id }
}

fn end(stamp: u64) -> Event {
    Event::Return(Return {
        stamp,
        answer: 0,
        carried: Carried::default(),
    })
}

/// CPU 0 takes A; CPU 1 then takes A and B; only then does CPU 0 take B.
fn crossing() -> Vec<Vec<Event>> {
    let first = Event::ArmTimer(1_000 + (3 + 13));
    let second = Event::ArmTimer(1_000 + ((3 + 13) * 3 + 4));
    vec![
        vec![
            call(1, 0, BALANCE),
            lock(3, A),
            lock(8, B),
            second,
            end(10),
            Event::End { stamp: 12 },
        ],
        vec![
            call(2, 1, BALANCE),
            lock(4, A),
            lock(5, B),
            first,
            end(9),
            Event::End { stamp: 11 },
        ],
    ]
}

#[test]
fn calls_that_cross_each_other_at_locks_do_so_again() {
    let recording = parse(&file(&header(2), &crossing(), BLOCK_SIZE));
    for single in [SINGLE, THREADS] {
        let outcome = is_same(&recording, policy(), single);
        assert_eq!((outcome.events, outcome.calls), (12, 2));
    }
}

#[test]
fn another_order_of_the_same_locks_is_another_run() {
    let mut cpus = crossing();
    // As if CPU 0 had been first at B.
    cpus[0][2] = lock(5, B);
    cpus[1][2] = lock(8, B);
    let recording = parse(&file(&header(2), &cpus, BLOCK_SIZE));
    for single in [SINGLE, THREADS] {
        let End::Diverged(found) = run(&recording, policy(), single).end else {
            panic!()
        };
        assert_eq!((found.cpu, found.method), (0, "balance"));
        assert_eq!(found.expected, "sets its timer, 1.052 us from now");
        assert_eq!(found.got, "sets its timer, 1.007 us from now");
    }
}

#[test]
fn a_lock_has_one_name() {
    let mut cpus = crossing();
    cpus[1][1] = lock(4, B);
    let recording = parse(&file(&header(2), &cpus, BLOCK_SIZE));
    for single in [SINGLE, THREADS] {
        let End::Diverged(found) = run(&recording, policy(), single).end else {
            panic!()
        };
        assert_eq!(
            (found.number, found.expected.as_str(), found.got.as_str()),
            (3, "takes lock 0x47", "takes lock 0x46")
        );
    }
}

#[test]
fn a_lock_that_was_taken_while_it_was_held_is_told() {
    // Nested locks: CPU 1 cannot have had A before CPU 0 took B.
    let cpus = vec![
        vec![
            call(1, 0, ENTER_IDLE),
            lock(3, A),
            lock(8, B),
            Event::ArmTimer(1),
            end(10),
            Event::End { stamp: 12 },
        ],
        vec![
            call(2, 1, ENTER_IDLE),
            lock(4, A),
            lock(5, B),
            Event::ArmTimer(1),
            end(9),
            Event::End { stamp: 11 },
        ],
    ];
    let recording = parse(&file(&header(2), &cpus, BLOCK_SIZE));
    for single in [SINGLE, THREADS] {
        let End::Diverged(found) = run(&recording, policy(), single).end else {
            panic!()
        };
        assert_eq!((found.number, found.cpu), (3, 1));
        assert_eq!(
            found.got,
            "takes the lock, which another CPU does not release before"
        );
    }
}

/// A legal run of several CPUs with a given number of steps. The CPU that goes on is drawn at
/// random, and a lock is released before its CPU's next event.
fn woven(cpus: usize, steps: usize, seed: u64) -> Vec<Vec<Event>> {
    let mut draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut a, mut b) = (1, 1);
    let mut streams = vec![Vec::new(); cpus];
    // By CPU: the state of its call, whether it is the nested one, and the value that it got at A.
    let mut at = vec![(0, false, 0); cpus];
    for stamp in 1..=steps as u64 {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        let a_is_held = at.iter().any(|&(step, nested, _)| step == 2 && nested);
        let ready = |cpu: &usize| at[*cpu].0 != 1 || !a_is_held;
        let ready: Vec<usize> = (0..cpus).filter(ready).collect();
        let cpu = ready[draw as usize % ready.len()];
        let (step, nested, by) = &mut at[cpu];
        match *step {
            0 => {
                *nested = draw & 1 << 40 != 0;
                streams[cpu].push(call(stamp, cpu, if *nested { ENTER_IDLE } else { BALANCE }));
            }
            1 => {
                *by = Sums::turn(&mut a, if *nested { 2 } else { 1 });
                streams[cpu].push(lock(stamp, A));
            }
            2 => {
                let sum = Sums::turn(&mut b, *by);
                streams[cpu].extend([lock(stamp, B), Event::ArmTimer(1_000 + sum)]);
            }
            _ => streams[cpu].push(end(stamp)),
        }
        *step = (*step + 1) % 4;
    }
    for (cpu, stream) in streams.iter_mut().enumerate() {
        // Calls that had not returned when the recording ended.
        stream.push(Event::End {
            stamp: (steps + 1 + cpu) as u64,
        });
    }
    streams
}

#[test]
fn many_calls_that_cross_each_other() {
    for seed in 0..20 {
        let cpus = 2 + seed as usize % 7;
        let streams = woven(cpus, 4_000, seed);
        let recording = parse(&file(&header(cpus as u32), &streams, HEAD_SIZE + 1024));
        for single in [SINGLE, THREADS] {
            let outcome = run(&recording, policy(), single);
            assert_eq!(outcome.end, End::Whole, "seed {seed}");
            assert!(outcome.calls > 900);
        }
    }
}

#[test]
fn events_that_are_no_recording_are_told() {
    for events in [
        vec![lock(1, A), Event::End { stamp: 2 }],
        vec![Event::Now(7), Event::End { stamp: 2 }],
    ] {
        let recording: Recording = parse(&file(&header(1), &[events], BLOCK_SIZE));
        let End::Gap { what, .. } = run(&recording, policy(), SINGLE).end else {
            panic!()
        };
        assert!(what.contains("outside a call"), "{what}");
    }
}

/// In the kernel, a method without an answer leaves whatever is in a register.
#[test]
fn the_answer_of_a_method_that_gives_none_means_nothing() {
    let mut cpus = crossing();
    cpus[0][4] = Event::Return(Return {
        stamp: 10,
        answer: 7,
        carried: Carried::default(),
    });
    let recording = parse(&file(&header(2), &cpus, BLOCK_SIZE));
    for single in [SINGLE, THREADS] {
        is_same(&recording, policy(), single);
    }
}

/// The kernel has less memory and stack, so the call was ended there.
#[test]
fn a_call_that_had_too_little_is_taken_as_ended() {
    for (kind, what, says) in [
        (2, "out of memory", "in a replay there is more"),
        (3, "stack overflow", "had used up its stack here"),
    ] {
        let mut cpus = crossing();
        cpus[0].truncate(3);
        if kind == 2 {
            cpus[0].push(Event::NoMemory { after: 0 });
        }
        cpus[0].extend([
            Event::Abandoned { stamp: 10, kind },
            Event::End { stamp: 12 },
        ]);
        let recording = parse(&file(&header(2), &cpus, BLOCK_SIZE));
        for single in [SINGLE, THREADS] {
            let outcome = is_same(&recording, policy(), single);
            let [fault] = &outcome.faults[..] else {
                panic!("{:?}", outcome.faults)
            };
            assert_eq!((fault.kind, fault.cpu), (what, 0));
            assert!(fault.message.ends_with(says), "{}", fault.message);
        }
    }
}

/// The recorded policy had an endless loop, and this one has not.
#[test]
fn a_call_that_was_endless_and_returns_is_another() {
    let mut cpus = crossing();
    cpus[0].truncate(3);
    cpus[0].extend([
        Event::Abandoned {
            stamp: 10,
            kind: 11,
        },
        Event::End { stamp: 12 },
    ]);
    let recording = parse(&file(&header(2), &cpus, BLOCK_SIZE));
    for single in [SINGLE, THREADS] {
        let outcome = run(&recording, policy(), single);
        let End::Diverged(divergence) = &outcome.end else {
            panic!("{outcome:?}")
        };
        assert!(
            divergence.expected.contains("endless loop"),
            "{divergence:?}"
        );
        assert!(outcome.faults.is_empty());
    }
}
