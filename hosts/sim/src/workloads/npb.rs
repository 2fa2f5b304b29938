// SPDX-License-Identifier: GPL-2.0-only
//! A parallel program as those of the NAS Parallel Benchmarks, in OpenMP: the main thread makes the
//! other threads one after the other, and then all of them compute a part of each loop, and meet at
//! its end. When the program has ended, it starts again. Ipanema (EuroSys '20, section 5.2) uses
//! these programs to show what it costs when new threads come to busy CPUs beside idle ones.
//!
//! The barrier sleeps (OMP_WAIT_POLICY=passive). One operation is one run of the program; the
//! response is the time that it took.
//!
//! The programs differ in how often their threads meet. [`PROGRAMS`] has their iterations in class
//! C, and estimates of the parallel loops of an iteration and of the CPU time. They have the shape
//! of the benchmarks, and are no measurement of them.
//!
//! Deviation: all parallel loops of a program are equally long, and nothing models memory.
//!
//! Keys: `program`, `threads`, `scale` (the part of the iterations that is run), `runs`.

use super::forkjoin::THREADS;
use super::{Key, Kind, Stage, Workload};
use crate::rng::Rng;
use crate::world::{Cx, Group, Object, Op, Program, Spawn};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The shape of a program.
struct Shape {
    name: &'static str,
    iterations: u32,
    /// Parallel loops of an iteration.
    loops: u32,
    /// CPU time of all threads, ns.
    work: u64,
    /// The most by which the parts of a loop differ, per cent.
    imbalance: u64,
}

const fn shape(
    name: &'static str,
    iterations: u32,
    loops: u32,
    seconds: u64,
    imbalance: u64,
) -> Shape {
    Shape {
        name,
        iterations,
        loops,
        work: seconds * S,
        imbalance,
    }
}

/// Dense solvers (BT, SP, LU), transforms and sorting (FT, IS), a sparse matrix and a hierarchy of
/// grids with many short loops (CG, MG), independent random numbers (EP), and a mesh that is
/// refined unevenly (UA).
const PROGRAMS: [Shape; 9] = [
    shape("bt", 200, 9, 1300, 5),
    shape("cg", 75, 103, 200, 5),
    shape("ep", 1, 1, 350, 5),
    shape("ft", 20, 5, 250, 5),
    shape("is", 10, 4, 15, 10),
    shape("lu", 250, 8, 1200, 15),
    shape("mg", 20, 36, 60, 10),
    shape("sp", 400, 13, 1000, 5),
    shape("ua", 200, 40, 900, 20),
];

/// The names of the programs.
pub const NAMES: [&str; PROGRAMS.len()] = {
    let mut names = [""; PROGRAMS.len()];
    let mut at = 0;
    while at < PROGRAMS.len() {
        names[at] = PROGRAMS[at].name;
        at += 1;
    }
    names
};

pub(super) const WORKLOAD: Workload = Workload {
    name: "npb",
    help: "a program that makes threads, which meet at barriers (NAS parallel benchmarks)",
    keys: &[
        Key {
            name: "program",
            kind: Kind::Name(&NAMES),
            default: "ft",
            help: "the program",
        },
        THREADS,
        Key {
            name: "scale",
            kind: Kind::Number(0.001, 1.0),
            default: "1",
            help: "the part of the iterations that is run",
        },
        Key {
            name: "runs",
            kind: Kind::Count(0, 1_000_000),
            default: "0",
            help: "how often it is run; 0 for endlessly",
        },
    ],
    add,
};

/// CPU time of the main thread before it makes the others, ns.
const BEGIN: u64 = 2 * MS;
/// CPU time that it needs to make a thread, ns.
const MAKE: u64 = 20 * US;

/// What each thread of the program does.
#[derive(Clone, Copy)]
struct Parts {
    barrier: Object,
    /// Loops that are left.
    loops: u32,
    /// CPU time of a part of a loop, ns, and the most by which it differs.
    work: u64,
    spread: u64,
    at_barrier: bool,
}

impl Parts {
    /// The next thing to do, or `None` after the last loop.
    fn next(&mut self, rng: &mut Rng) -> Option<Op> {
        if std::mem::take(&mut self.at_barrier) {
            return Some(Op::Barrier(self.barrier));
        }
        self.loops = self.loops.checked_sub(1)?;
        self.at_barrier = true;
        let least = (self.work - self.spread).max(1);
        Some(Op::Run(rng.between(least, self.work + self.spread)))
    }
}

struct Worker(Parts);

impl Program for Worker {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.0.next(cx.rng).unwrap_or(Op::Exit)
    }
}

enum Step {
    Begin,
    /// Makes this many threads, and has paid for the next one or not.
    Make(u64, bool),
    Compute(Parts),
    Respond,
    End,
}

struct Main {
    name: String,
    group: Group,
    threads: u64,
    parts: Parts,
    /// Runs that are left; `None` for endlessly many.
    runs: Option<u64>,
    began: u64,
    step: Step,
}

impl Program for Main {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match &mut self.step {
                Step::Begin => {
                    self.began = cx.now;
                    self.step = Step::Make(self.threads - 1, false);
                    return Op::Run(BEGIN);
                }
                Step::Make(0, _) => self.step = Step::Compute(self.parts),
                Step::Make(_, is_paid @ false) => {
                    *is_paid = true;
                    return Op::Run(MAKE);
                }
                Step::Make(left, is_paid) => {
                    *left -= 1;
                    *is_paid = false;
                    let worker = Spawn::new(self.name.as_str(), Worker(self.parts));
                    return Op::Fork(Box::new(worker.group(self.group)));
                }
                Step::Compute(parts) => match parts.next(cx.rng) {
                    Some(op) => return op,
                    None => {
                        self.step = Step::Respond;
                        return Op::Response(cx.now - self.began);
                    }
                },
                Step::Respond => {
                    self.step = Step::End;
                    return Op::Done(1);
                }
                Step::End => {
                    if let Some(runs) = &mut self.runs {
                        *runs -= 1;
                        if *runs == 0 {
                            return Op::Exit;
                        }
                    }
                    self.step = Step::Begin;
                }
            }
        }
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let shape = &PROGRAMS[stage.params.whole("program") as usize];
    let (threads, runs) = (stage.params.whole("threads"), stage.params.whole("runs"));
    stage.room_for(threads)?;
    let loops = shape.iterations * shape.loops;
    let work = (shape.work / u64::from(loops) / threads).max(1);
    let scaled = (f64::from(loops) * stage.params.number("scale")).round() as u32;
    let group = stage.group();
    let main = Main {
        name: stage.name.clone(),
        group,
        threads,
        parts: Parts {
            barrier: stage.world.barrier(threads as u32),
            loops: scaled.max(1),
            work,
            spread: work * shape.imbalance / 100,
            at_barrier: false,
        },
        runs: (runs > 0).then_some(runs),
        began: 0,
        step: Step::Begin,
    };
    let name = format!("{}-main", stage.name);
    stage.world.task(Spawn::new(name, main).group(group));
    Ok(())
}
