// SPDX-License-Identifier: GPL-2.0-only
//! A tree of short-lived tasks: `make -jN` of the kernel.
//!
//! make keeps `jobs` recipes running. A recipe is a compiler driver that forks cc1, waits, forks
//! as, waits, and ends. cc1 and as first read their files, some of which come from the disk. When
//! all objects are built, one ld runs alone, and the build starts again.
//!
//! One operation is one object; the response is the time from the fork of its recipe to its end.
//! The CPU time of a compiler is distributed exponentially, between a tenth of the mean and ten
//! times the mean: many small files, few large ones.
//!
//! Keys: `jobs` (-j), `objects` (of a build), `compile` (mean CPU time of cc1), `assemble`, `link`,
//! `io` (a read from disk).

use std::sync::{Arc, Mutex};

use super::{Key, Kind, Stage, Workload};
use crate::rng::Rng;
use crate::world::{Cx, Object, Op, Program, Spawn};

const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "build",
    help: "fork tree of short-lived compilers with a linking phase (make -jN of the kernel)",
    keys: &[
        Key {
            name: "jobs",
            kind: Kind::Count(1, 10_000),
            default: "cpus",
            help: "recipes at a time (-j)",
        },
        Key {
            name: "objects",
            kind: Kind::Count(1, 1_000_000),
            default: "1000",
            help: "objects of a build",
        },
        Key {
            name: "compile",
            kind: Kind::Time(10, 100 * S),
            default: "80ms",
            help: "mean CPU time of cc1",
        },
        Key {
            name: "assemble",
            kind: Kind::Time(10, 100 * S),
            default: "8ms",
            help: "mean CPU time of as",
        },
        Key {
            name: "link",
            kind: Kind::Time(10, 1000 * S),
            default: "2s",
            help: "CPU time of ld",
        },
        Key {
            name: "io",
            kind: Kind::Time(0, S),
            default: "200us",
            help: "mean time of a read from disk",
        },
    ],
    add,
};

/// CPU time of make and the driver between two forks, ns.
const BETWEEN: u64 = 300_000;
/// One in this many reads goes to the disk.
const UNCACHED: u64 = 4;

#[derive(Clone, Copy)]
struct Costs {
    compile: u64,
    assemble: u64,
    link: u64,
    io: u64,
}

/// Places for recipes. Objects cannot be created while the simulation runs, so a recipe that has
/// ended leaves its place to a later one.
struct Places {
    free: Mutex<Vec<Object>>,
    /// Signalled when a recipe, or ld, ends.
    ended: Object,
}

fn around(rng: &mut Rng, mean: u64) -> u64 {
    rng.exponential(mean)
        .clamp(mean / 10, mean.saturating_mul(10))
}

/// A program that reads files, computes, and notifies its parent: cc1, as, ld.
struct Tool {
    reads: u32,
    work: u64,
    io: u64,
    /// The parent waits for this.
    parent: Object,
    told: bool,
}

impl Program for Tool {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        while self.reads > 0 {
            self.reads -= 1;
            if cx.rng.one_in(UNCACHED) {
                return Op::Sleep(cx.rng.exponential(self.io));
            }
        }
        if self.work > 0 {
            return Op::Run(std::mem::take(&mut self.work));
        }
        // exit_notify() wakes the parent before the child's last switch.
        if std::mem::replace(&mut self.told, true) {
            Op::Exit
        } else {
            Op::Up {
                to: self.parent,
                sync: true,
            }
        }
    }
}

/// The driver of a recipe.
struct Recipe {
    costs: Costs,
    place: Object,
    places: Arc<Places>,
    began: u64,
    step: u8,
}

impl Program for Recipe {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step += 1;
        match step {
            0 => {
                self.began = cx.now;
                Op::Run(BETWEEN)
            }
            1 | 3 => {
                let mean = if step == 1 {
                    self.costs.compile
                } else {
                    self.costs.assemble
                };
                // A compiler includes headers; the assembler has one file.
                let reads = if step == 1 { 16 } else { 1 };
                let work = around(cx.rng, mean);
                let tool = Tool {
                    reads,
                    work,
                    io: self.costs.io,
                    parent: self.place,
                    told: false,
                };
                Op::Fork(Box::new(Spawn::new(
                    if step == 1 { "cc1" } else { "as" },
                    tool,
                )))
            }
            2 | 4 => Op::Down(self.place),
            5 => Op::Response(cx.now - self.began),
            6 => Op::Done(1),
            7 => {
                self.places
                    .free
                    .lock()
                    .expect("no task panics with it")
                    .push(self.place);
                Op::Up {
                    to: self.places.ended,
                    sync: true,
                }
            }
            _ => Op::Exit,
        }
    }
}

struct Make {
    costs: Costs,
    places: Arc<Places>,
    objects: u64,
    left: u64,
    running: u64,
    forking: bool,
    linking: bool,
}

impl Program for Make {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        if std::mem::take(&mut self.forking) {
            return self.fork();
        }
        let free = !self
            .places
            .free
            .lock()
            .expect("no task panics with it")
            .is_empty();
        if (self.left > 0 && free) || (self.left == 0 && self.running == 0 && !self.linking) {
            self.forking = true;
            return Op::Run(BETWEEN);
        }
        // When the operation below completes, a child has ended: a recipe, or ld, after which the
        // next build begins.
        if std::mem::take(&mut self.linking) {
            self.left = self.objects;
        } else {
            self.running -= 1;
        }
        Op::Down(self.places.ended)
    }
}

impl Make {
    fn fork(&mut self) -> Op {
        let costs = self.costs;
        if self.left == 0 {
            self.linking = true;
            let ld = Tool {
                reads: 64,
                work: costs.link,
                io: costs.io,
                parent: self.places.ended,
                told: false,
            };
            return Op::Fork(Box::new(Spawn::new("ld", ld)));
        }
        let place = self
            .places
            .free
            .lock()
            .expect("no task panics with it")
            .pop();
        let place = place.expect("only a recipe that ends touches the places, and it adds one");
        self.left -= 1;
        self.running += 1;
        Op::Fork(Box::new(Spawn::new(
            "cc",
            Recipe {
                costs,
                place,
                places: self.places.clone(),
                began: 0,
                step: 0,
            },
        )))
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let whole = |key| stage.params.whole(key);
    let costs = Costs {
        compile: whole("compile"),
        assemble: whole("assemble"),
        link: whole("link"),
        io: whole("io"),
    };
    let (jobs, objects) = (whole("jobs"), whole("objects"));
    stage.room_for(3 * jobs + 1)?;
    let group = stage.group();
    let free = (0..jobs).map(|_| stage.world.semaphore(0)).collect();
    let places = Arc::new(Places {
        free: Mutex::new(free),
        ended: stage.world.semaphore(0),
    });
    let make = Make {
        costs,
        places,
        objects,
        left: objects,
        running: 0,
        forking: false,
        linking: false,
    };
    stage
        .world
        .task(Spawn::new(format!("{}-make", stage.name), make).group(group));
    Ok(())
}
