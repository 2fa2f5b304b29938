// SPDX-License-Identifier: GPL-2.0-only
//! Message threads that wake worker threads: schbench (Chris Mason, github.com/masoncl/schbench),
//! the shape of a web server.
//!
//! A worker puts itself on its message thread's list, posts to it and sleeps on a futex of its own.
//! The message thread takes workers off the list and wakes them. A woken worker sleeps for the time
//! of a network round trip, then computes: that is a request, and its duration is the response.
//!
//! Deviation: the original's per-CPU spin lock around each matrix multiplication is not modelled.
//!
//! Keys: `messengers`, `workers` (of each), `sleep`, `work` (five multiplications of the original's
//! default size are about 5 ms), `post` (a message thread's CPU time for a wakeup), `wakeups` (1:
//! the response is the time from a worker's wakeup until it runs), `pinned` (1: all tasks on the
//! first CPU), `hints` (1: each message thread first sends the hints of the policy `locality` that
//! put it and its workers in one group). Enoki, section 5.5, has all three.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{
    atomic::{AtomicU64, Ordering::Relaxed},
    Arc, Mutex,
};

use baton_abi::BatonHint;

use super::{Key, Kind, Stage, Workload};
use crate::topology::CpuMask;
use crate::world::{Cx, Object, Op, Program, Spawn, TaskRef};

const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "schbench",
    help: "message threads that wake workers, which sleep and compute (schbench)",
    keys: &[
        Key {
            name: "messengers",
            kind: Kind::Count(1, 1_000),
            default: "1",
            help: "message threads",
        },
        Key {
            name: "workers",
            kind: Kind::Count(1, 10_000),
            default: "cpus",
            help: "workers of each",
        },
        Key {
            name: "sleep",
            kind: Kind::Time(0, S),
            default: "100us",
            help: "sleep before computing",
        },
        Key {
            name: "work",
            kind: Kind::Time(1, 10 * S),
            default: "5ms",
            help: "CPU time of a request",
        },
        Key {
            name: "post",
            kind: Kind::Time(1, S),
            default: "1us",
            help: "CPU time of a wakeup",
        },
        Key {
            name: "wakeups",
            kind: Kind::Count(0, 1),
            default: "0",
            help: "1: responses are waits of woken workers",
        },
        Key {
            name: "pinned",
            kind: Kind::Count(0, 1),
            default: "0",
            help: "1: all on the first CPU",
        },
        Key {
            name: "hints",
            kind: Kind::Count(0, 1),
            default: "0",
            help: "1: tell the policy which threads belong together",
        },
    ],
    add,
};

/// A worker that waits to be woken.
#[derive(Clone)]
struct Waiter {
    woken: Object,
    /// The time of its wakeup, ns.
    at: Arc<AtomicU64>,
}

struct Messenger {
    /// The tasks, relative to this one, for which the group hint is still to be sent, and the
    /// group.
    to_say: Range<u32>,
    group: u64,
    posted: Object,
    waiting: Arc<Mutex<VecDeque<Waiter>>>,
    post: u64,
    step: u8,
}

impl Program for Messenger {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if let Some(at) = self.to_say.next() {
            let thread = Some(TaskRef(cx.me.0 + at));
            return Op::Hint {
                hint: BatonHint {
                    tag: 1,
                    words: [self.group, 0, 0, 0, 0, 0],
                    ..BatonHint::default()
                },
                thread,
            };
        }
        let step = self.step;
        self.step = (step + 1) % 3;
        match step {
            0 => Op::Down(self.posted),
            1 => Op::Run(self.post),
            _ => match self
                .waiting
                .lock()
                .expect("no task panics with it")
                .pop_front()
            {
                Some(Waiter { woken, at }) => {
                    at.store(cx.now, Relaxed);
                    Op::Up {
                        to: woken,
                        sync: false,
                    }
                }
                // Each post is preceded by an entry in the list.
                None => Op::Done(0),
            },
        }
    }
}

struct Worker {
    me: Waiter,
    posted: Object,
    waiting: Arc<Mutex<VecDeque<Waiter>>>,
    sleep: u64,
    work: u64,
    /// The response measures the wakeup, not the request.
    wakeups: bool,
    step: u8,
    began: u64,
}

impl Program for Worker {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step = (step + 1) % 7;
        match step {
            0 => {
                self.waiting
                    .lock()
                    .expect("no task panics with it")
                    .push_back(self.me.clone());
                Op::Up {
                    to: self.posted,
                    sync: false,
                }
            }
            1 => Op::Down(self.me.woken),
            2 if self.wakeups => Op::Response(cx.now - self.me.at.load(Relaxed)),
            2 => Op::Done(0),
            3 => {
                self.began = cx.now;
                Op::Sleep(self.sleep)
            }
            4 => Op::Run(self.work),
            5 if !self.wakeups => Op::Response(cx.now - self.began),
            5 => Op::Done(0),
            _ => Op::Done(1),
        }
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let whole = |key| stage.params.whole(key);
    let (messengers, workers) = (whole("messengers"), whole("workers"));
    let (sleep, work, post, hints) = (whole("sleep"), whole("work"), whole("post"), whole("hints"));
    let wakeups = whole("wakeups") == 1;
    let affinity = (whole("pinned") == 1).then(|| Arc::new(CpuMask::of([0])));
    stage.room_for(messengers * (workers + 1))?;
    let group = stage.group();
    for messenger in 0..messengers {
        let posted = stage.world.semaphore(0);
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        let to_say = 0..if hints == 0 { 0 } else { workers as u32 + 1 };
        let program = Messenger {
            to_say,
            group: messenger + 1,
            posted,
            waiting: waiting.clone(),
            post,
            step: 0,
        };
        let spawn = Spawn::new(format!("{}-{messenger}m", stage.name), program).group(group);
        stage.world.task(Spawn {
            affinity: affinity.clone(),
            ..spawn
        });
        for worker in 0..workers {
            let me = Waiter {
                woken: stage.world.semaphore(0),
                at: Arc::default(),
            };
            let program = Worker {
                me,
                posted,
                waiting: waiting.clone(),
                sleep,
                work,
                wakeups,
                step: 0,
                began: 0,
            };
            let spawn =
                Spawn::new(format!("{}-{messenger}w{worker}", stage.name), program).group(group);
            stage.world.task(Spawn {
                affinity: affinity.clone(),
                ..spawn
            });
        }
    }
    Ok(())
}
