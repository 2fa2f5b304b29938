// SPDX-License-Identifier: GPL-2.0-only
//! A `Schedulable` is used up by queueing it; picking it as well would run the task twice.
#![forbid(unsafe_code)]

use baton::{runqueue::Fifo, Pick, Schedulable};

fn keep_and_pick(queue: &mut Fifo, task: Schedulable) -> Pick {
    queue.push_back(task);
    Pick::Run { task, slice: 0 }
}

fn main() {
    let _ = keep_and_pick;
}
