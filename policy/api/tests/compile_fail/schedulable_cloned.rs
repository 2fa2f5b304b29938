// SPDX-License-Identifier: GPL-2.0-only
//! A `Schedulable` has no copy.
#![forbid(unsafe_code)]

use baton::{runqueue::Fifo, Schedulable};

fn queue_twice(queue: &mut Fifo, task: Schedulable) {
    queue.push_back(task.clone());
    queue.push_back(task);
}

fn main() {
    let _ = queue_twice;
}
