// SPDX-License-Identifier: GPL-2.0-only
//! Message threads that wake worker threads: schbench (Chris Mason, github.com/masoncl/schbench), the shape of a web server.
//!
//! A worker puts itself on its message thread's list, posts to it and sleeps on a futex of its own. The message thread takes workers
//! off the list and wakes them. A worker that was woken sleeps for the time of a network round, then computes: that is a request, whose
//! time is the response.
//!
//! Deviation: the original's per-CPU spin lock around each matrix multiplication is not modelled.
//!
//! Keys: `messengers`, `workers` (of each), `sleep`, `work` (five multiplications of the original's default size are about 5 ms),
//! `post` (what waking costs a message thread).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{Key, Kind, Stage, Workload};
use crate::world::{Cx, Object, Op, Program, Spawn};

const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "schbench",
    help: "message threads that wake workers, which sleep and compute (schbench)",
    keys: &[
        Key { name: "messengers", kind: Kind::Count(1, 1_000), default: "1", help: "message threads" },
        Key { name: "workers", kind: Kind::Count(1, 10_000), default: "cpus", help: "workers of each" },
        Key { name: "sleep", kind: Kind::Time(0, S), default: "100us", help: "sleep before computing" },
        Key { name: "work", kind: Kind::Time(1, 10 * S), default: "5ms", help: "CPU time of a request" },
        Key { name: "post", kind: Kind::Time(1, S), default: "1us", help: "CPU time of a wakeup" },
    ],
    add,
};

struct Messenger {
    posted: Object,
    waiting: Arc<Mutex<VecDeque<Object>>>,
    post: u64,
    step: u8,
}

impl Program for Messenger {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step = (step + 1) % 3;
        match step {
            0 => Op::Down(self.posted),
            1 => Op::Run(self.post),
            _ => match self.waiting.lock().expect("no task panics with it").pop_front() {
                Some(worker) => Op::Up { to: worker, sync: false },
                // Each post is preceded by an entry in the list.
                None => Op::Done(0),
            },
        }
    }
}

struct Worker {
    woken: Object,
    posted: Object,
    waiting: Arc<Mutex<VecDeque<Object>>>,
    sleep: u64,
    work: u64,
    step: u8,
    began: u64,
}

impl Program for Worker {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step = (step + 1) % 6;
        match step {
            0 => {
                self.waiting.lock().expect("no task panics with it").push_back(self.woken);
                Op::Up { to: self.posted, sync: false }
            }
            1 => Op::Down(self.woken),
            2 => {
                self.began = cx.now;
                Op::Sleep(self.sleep)
            }
            3 => Op::Run(self.work),
            4 => Op::Response(cx.now - self.began),
            _ => Op::Done(1),
        }
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let whole = |key| stage.params.whole(key);
    let (messengers, workers) = (whole("messengers"), whole("workers"));
    let (sleep, work, post) = (whole("sleep"), whole("work"), whole("post"));
    stage.room_for(messengers * (workers + 1))?;
    let group = stage.group();
    for messenger in 0..messengers {
        let posted = stage.world.semaphore(0);
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        let program = Messenger { posted, waiting: waiting.clone(), post, step: 0 };
        stage.world.task(Spawn::new(format!("{}-{messenger}m", stage.name), program).group(group));
        for worker in 0..workers {
            let woken = stage.world.semaphore(0);
            let program = Worker { woken, posted, waiting: waiting.clone(), sleep, work, step: 0, began: 0 };
            stage.world.task(Spawn::new(format!("{}-{messenger}w{worker}", stage.name), program).group(group));
        }
    }
    Ok(())
}
