// SPDX-License-Identifier: GPL-2.0-only
//! Two tasks that send each other one word through two pipes: `perf bench sched pipe`
//! (tools/perf/bench/sched-pipe.c).
//!
//! A write into a pipe wakes the reader with WF_SYNC, as fs/pipe.c does
//! (wake_up_interruptible_sync_poll), and the writer then blocks in its own read. One operation is
//! a round trip; the response is its duration.
//!
//! Keys: `pairs`; `work`, the CPU time of one message (two system calls).

use super::{Key, Kind, Stage, Workload};
use crate::world::{Cx, Object, Op, Program, Spawn};

pub(super) const WORKLOAD: Workload = Workload {
    name: "pipe",
    help: "pairs of tasks that wake each other in turn (perf bench sched pipe)",
    keys: &[
        Key {
            name: "pairs",
            kind: Kind::Count(1, 50_000),
            default: "1",
            help: "pairs of tasks",
        },
        Key {
            name: "work",
            kind: Kind::Time(1, 1_000_000_000),
            default: "1us",
            help: "CPU time of a message",
        },
    ],
    add,
};

struct End {
    first: bool,
    to: Object,
    from: Object,
    work: u64,
    step: u8,
    sent: u64,
}

impl Program for End {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        // The first writes and reads, the second reads and writes.
        let step = self.step;
        self.step = (step + 1) % 5;
        match (step, self.first) {
            (0, true) => {
                self.sent = cx.now;
                Op::Run(self.work)
            }
            (1, true) => Op::Up {
                to: self.to,
                sync: true,
            },
            (2, true) => Op::Down(self.from),
            (3, true) => Op::Response(cx.now - self.sent),
            (_, true) => Op::Done(1),
            (0, false) => Op::Down(self.from),
            (1, false) => Op::Run(self.work),
            (_, false) => {
                self.step = 0;
                Op::Up {
                    to: self.to,
                    sync: true,
                }
            }
        }
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let (pairs, work) = (stage.params.whole("pairs"), stage.params.whole("work"));
    stage.room_for(2 * pairs)?;
    let group = stage.group();
    for pair in 0..pairs {
        let pipes = [stage.world.semaphore(0), stage.world.semaphore(0)];
        for first in [true, false] {
            let end = usize::from(first);
            let program = End {
                first,
                to: pipes[end],
                from: pipes[1 - end],
                work,
                step: 0,
                sent: 0,
            };
            let name = format!("{}-{pair}{}", stage.name, if first { "a" } else { "b" });
            stage.world.task(Spawn::new(name, program).group(group));
        }
    }
    Ok(())
}
