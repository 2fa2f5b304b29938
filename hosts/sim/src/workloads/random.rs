// SPDX-License-Identifier: GPL-2.0-only
//! Random tasks of every behaviour on a machine on which random events happen, all derived from the
//! seed. The workload is for finding faults of policies and of the simulator, not for measuring.
//!
//! It is always legal. Locks are taken in one order, tasks that meet at a barrier never end, queues
//! and forks are bounded, and external events affect only tasks that do not end. The first task
//! never waits for another, so that at least one task is always alive.
//!
//! Keys: `tasks` (0: four for each CPU); `for`, the time in which events happen to the machine;
//! `happenings`, the number of those per second.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::Arc;

use super::{Key, Kind, Stage, Workload};
use crate::rng::Rng;
use crate::topology::CpuMask;
use crate::world::{Cx, Group, Happening, Item, Object, Op, Program, Spawn, TaskRef};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "random",
    help: "tasks of every behaviour, hotplug, higher classes and interrupts, by seed",
    keys: &[
        Key {
            name: "tasks",
            kind: Kind::Count(0, 100_000),
            default: "0",
            help: "tasks; 0: four for each CPU",
        },
        Key {
            name: "for",
            kind: Kind::Time(0, 1000 * S),
            default: "10s",
            help: "how long things happen to the machine",
        },
        Key {
            name: "happenings",
            kind: Kind::Count(0, 100_000),
            default: "100",
            help: "of those a second",
        },
    ],
    add,
};

/// Upper limit of the living children of one task: they may be starved for long while their parent
/// is not.
const CHILDREN: u32 = 16;

/// Latest start time of a task, ns. External events begin only then, so that every task that they
/// may affect exists.
const LATEST: u64 = 20 * MS;

/// The behaviour of a task.
#[derive(Clone)]
enum Role {
    Hog,
    Sleeper,
    Yielder,
    Changer,
    Forker { living: Arc<AtomicU32>, depth: u32 },
    Locker { outer: Object, inner: Object },
    Producer { room: Object, queue: Object },
    Consumer { room: Object, queue: Object },
    Member { barrier: Object },
    Waiter { mutex: Object, condition: Object },
    Signaller { mutex: Object, condition: Object },
    Suspender,
    Resumer { whom: TaskRef },
}

/// The rest of the life of a task that ends.
struct Mortal {
    rounds: u64,
    living: Arc<AtomicU32>,
}

struct Life {
    role: Role,
    cpus: usize,
    mortal: Option<Mortal>,
    /// The item that was taken last.
    item: Option<Item>,
    todo: VecDeque<Op>,
}

impl Life {
    fn of(role: Role, cpus: usize) -> Self {
        Self {
            role,
            cpus,
            mortal: None,
            item: None,
            todo: VecDeque::new(),
        }
    }

    /// Queues one round of the task's operations. Each round takes some time.
    fn round(&mut self, cx: &mut Cx<'_>) {
        let todo = &mut self.todo;
        let rng = &mut *cx.rng;
        todo.push_back(Op::Run(span(rng, 22)));
        match &self.role {
            Role::Hog => todo.push_back(Op::Done(1)),
            Role::Sleeper => todo.push_back(match rng.below(4) {
                // A time in the past does not block.
                0 => Op::SleepUntil((cx.now + rng.below(4 * MS)).saturating_sub(MS)),
                1 => Op::Sleep(0),
                _ => Op::Sleep(span(rng, 24)),
            }),
            Role::Yielder => todo.push_back(Op::Yield),
            Role::Changer => todo.extend([
                change(rng, self.cpus),
                Op::Run(span(rng, 18)),
                Op::Sleep(span(rng, 22)),
            ]),
            Role::Forker { living, depth } => {
                if living.load(Relaxed) < CHILDREN {
                    living.fetch_add(1, Relaxed);
                    let mut child = Self::of(child(rng, *depth), self.cpus);
                    child.mortal = Some(Mortal {
                        rounds: rng.below(8),
                        living: living.clone(),
                    });
                    let mut spawn = Spawn::new("child", child);
                    if rng.one_in(4) {
                        spawn.nice = Some(nice(rng));
                    }
                    todo.push_back(Op::Fork(Box::new(spawn)));
                }
                todo.push_back(Op::Sleep(100 * US + span(rng, 23)));
            }
            Role::Locker { outer, inner } => {
                todo.extend([Op::Down(*outer), Op::Run(span(rng, 18))]);
                if rng.one_in(2) {
                    todo.extend([
                        Op::Down(*inner),
                        Op::Sleep(span(rng, 18)),
                        Op::Up {
                            to: *inner,
                            sync: false,
                        },
                    ]);
                }
                todo.push_back(Op::Up {
                    to: *outer,
                    sync: false,
                });
            }
            Role::Producer { room, queue } => {
                let item = Item {
                    due: cx.now,
                    service: span(rng, 18),
                    tag: 0,
                };
                todo.extend([Op::Down(*room), Op::Put { to: *queue, item }]);
            }
            Role::Consumer { room, queue } => {
                if let Some(item) = self.item.take() {
                    todo.extend([Op::Response(cx.now.saturating_sub(item.due)), Op::Done(1)]);
                }
                todo.extend([
                    Op::Take(*queue),
                    Op::Up {
                        to: *room,
                        sync: rng.one_in(2),
                    },
                ]);
            }
            Role::Member { barrier } => todo.push_back(Op::Barrier(*barrier)),
            Role::Waiter { mutex, condition } => todo.extend([
                Op::Down(*mutex),
                Op::WaitCondition {
                    condition: *condition,
                    mutex: *mutex,
                },
                Op::Up {
                    to: *mutex,
                    sync: false,
                },
            ]),
            Role::Signaller { mutex, condition } => todo.extend([
                Op::Sleep(span(rng, 22)),
                Op::Down(*mutex),
                Op::Signal {
                    condition: *condition,
                    all: rng.one_in(3),
                },
                Op::Up {
                    to: *mutex,
                    sync: false,
                },
            ]),
            Role::Suspender => todo.push_back(Op::Suspend),
            Role::Resumer { whom } => todo.extend([Op::Sleep(span(rng, 22)), Op::Resume(*whom)]),
        }
    }
}

impl Program for Life {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.item = cx.item.or(self.item);
        if self.todo.is_empty() {
            if let Some(mortal) = &mut self.mortal {
                if mortal.rounds == 0 {
                    mortal.living.fetch_sub(1, Relaxed);
                    return Op::Exit;
                }
                mortal.rounds -= 1;
            }
            self.round(cx);
        }
        self.todo.pop_front().unwrap_or(Op::Exit)
    }
}

/// From a nanosecond to 2^bits of them; each power of two is equally likely.
fn span(rng: &mut Rng, bits: u64) -> u64 {
    let scale = 1 << rng.below(bits);
    scale + rng.below(scale)
}

fn nice(rng: &mut Rng) -> i32 {
    rng.below(40) as i32 - 20
}

fn mask(rng: &mut Rng, cpus: usize) -> Option<Arc<CpuMask>> {
    match rng.below(3) {
        0 => None,
        1 => Some(Arc::new(CpuMask::of([rng.below(cpus as u64) as usize]))),
        _ => {
            let mut chosen: Vec<usize> = (0..cpus).filter(|_| rng.one_in(2)).collect();
            chosen.push(rng.below(cpus as u64) as usize);
            Some(Arc::new(CpuMask::of(chosen)))
        }
    }
}

fn change(rng: &mut Rng, cpus: usize) -> Op {
    if rng.one_in(2) {
        Op::Nice(nice(rng))
    } else {
        Op::Affinity(mask(rng, cpus))
    }
}

fn child(rng: &mut Rng, depth: u32) -> Role {
    match rng.below(5) {
        0 => Role::Hog,
        1 => Role::Yielder,
        2 => Role::Changer,
        3 if depth > 0 => Role::Forker {
            living: Arc::default(),
            depth: depth - 1,
        },
        _ => Role::Sleeper,
    }
}

/// Adds one or more tasks that belong together, at most `room`.
fn add_some(stage: &mut Stage<'_>, group: Group, room: u64) {
    let some = stage.rng.between(2, 4).min(room);
    let kind = if room == 1 {
        stage.rng.below(5)
    } else {
        stage.rng.below(10)
    };
    let world = &mut *stage.world;
    let roles: Vec<Role> = match kind {
        0 => vec![Role::Hog],
        1 => vec![Role::Sleeper],
        2 => vec![Role::Yielder],
        3 => vec![Role::Changer],
        4 => vec![Role::Forker {
            living: Arc::default(),
            depth: 2,
        }],
        5 => {
            let role = Role::Locker {
                outer: world.semaphore(1),
                inner: world.semaphore(1),
            };
            vec![role; some as usize]
        }
        6 => {
            let (room, queue) = (world.semaphore(stage.rng.between(1, 8)), world.queue());
            let consumers = (1..some).map(|_| Role::Consumer { room, queue });
            std::iter::once(Role::Producer { room, queue })
                .chain(consumers)
                .collect()
        }
        7 => {
            let barrier = world.barrier(some as u32);
            vec![Role::Member { barrier }; some as usize]
        }
        8 => {
            let (mutex, condition) = (world.semaphore(1), world.condition());
            let waiters = (1..some).map(|_| Role::Waiter { mutex, condition });
            std::iter::once(Role::Signaller { mutex, condition })
                .chain(waiters)
                .collect()
        }
        // The resumer is created after the suspender, and knows its number.
        _ => vec![
            Role::Suspender,
            Role::Resumer {
                whom: TaskRef(world.tasks() as u32),
            },
        ],
    };
    for role in roles {
        let resumed = matches!(role, Role::Suspender);
        let mut task = Spawn::new(
            format!("{}-{}", stage.name, stage.world.tasks()),
            Life::of(role, stage.cpus),
        );
        if stage.rng.one_in(3) {
            task.nice = Some(nice(&mut stage.rng));
        }
        if stage.rng.one_in(4) {
            task.affinity = mask(&mut stage.rng, stage.cpus);
        }
        // A task that another resumes exists from the beginning.
        if stage.rng.one_in(3) && !resumed {
            task.at = stage.rng.below(LATEST);
        }
        stage.world.task(task.group(group));
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let tasks = match stage.params.whole("tasks") {
        0 => 4 * stage.cpus as u64,
        given => given,
    };
    stage.room_for(tasks)?;
    let group = stage.group();
    let first = stage.world.task(
        Spawn::new(
            format!("{}-first", stage.name),
            Life::of(Role::Sleeper, stage.cpus),
        )
        .group(group),
    );
    let end = u64::from(first.0) + tasks;
    while (stage.world.tasks() as u64) < end {
        let room = end - stage.world.tasks() as u64;
        add_some(stage, group, room);
    }
    happen(stage, first, tasks);
    Ok(())
}

/// Adds the external events. No event affects a CPU that is offline, and the first CPU never goes
/// offline.
fn happen(stage: &mut Stage<'_>, first: TaskRef, tasks: u64) {
    let (length, rate) = (stage.params.whole("for"), stage.params.whole("happenings"));
    let (rng, cpus) = (&mut stage.rng, stage.cpus as u64);
    let mut all: Vec<(u64, Happening)> = Vec::new();
    let mut offline_until = vec![0; stage.cpus];
    let mut at = LATEST;
    if rate == 0 {
        return;
    }
    loop {
        at += 1 + rng.exponential(S / rate);
        if at >= length {
            break;
        }
        let cpu = rng.below(cpus) as u32;
        let task = TaskRef(first.0 + rng.below(tasks) as u32);
        let what = match rng.below(6) {
            0 => Happening::Nice(task, nice(rng)),
            1 => Happening::Affinity(task, mask(rng, stage.cpus)),
            _ if offline_until[cpu as usize] >= at => continue,
            2 if cpu > 0 => {
                let back = at + 10 * US + span(rng, 25);
                offline_until[cpu as usize] = back;
                all.push((back, Happening::Online(cpu, true)));
                Happening::Online(cpu, false)
            }
            2 | 3 => Happening::HigherClass(cpu, US + span(rng, 21)),
            _ => Happening::Interrupt(cpu, 100 + span(rng, 15)),
        };
        all.push((at, what));
    }
    all.sort_by_key(|(at, _)| *at);
    for (at, what) in all {
        stage.world.happens(at, what);
    }
}
