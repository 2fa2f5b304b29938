// SPDX-License-Identifier: GPL-2.0-only
//! Groups of senders and receivers, in which each sender writes to each receiver of its group:
//! hackbench (`perf bench sched messaging`, tools/perf/bench/sched-messaging.c).
//!
//! Each receiver has a socket with room for `buffer` messages: 277 of 100 bytes fit into the
//! 212,992 bytes of net.core.wmem_default, at 768 bytes a packet. A sender that finds the socket
//! full waits. The reader is woken with WF_SYNC, as by sock_def_readable(). A message counts as an
//! operation when it has been received; the response is its time in transit.
//!
//! Deviation: the original holds all tasks at a starting gate and measures the whole run. Here
//! senders begin at once, and never end unless `loops` is given.
//!
//! Keys: `groups`, `fds` (senders, and receivers, of a group), `loops` (messages from each sender
//! to each receiver; 0 is endless), `datasize` (bytes; 10 of them cost a nanosecond on each side),
//! `work` (a system call without its data), `buffer`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{Key, Kind, Stage, Workload};
use crate::world::{Cx, Object, Op, Program, Spawn};

pub(super) const WORKLOAD: Workload = Workload {
    name: "hackbench",
    help: "groups of senders and receivers over bounded sockets (hackbench)",
    keys: &[
        Key {
            name: "groups",
            kind: Kind::Count(1, 2_500),
            default: "10",
            help: "groups",
        },
        Key {
            name: "fds",
            kind: Kind::Count(1, 1_000),
            default: "20",
            help: "senders, and receivers, of a group",
        },
        Key {
            name: "loops",
            kind: Kind::Count(0, 1_000_000_000),
            default: "0",
            help: "messages of a pair; 0: endless",
        },
        Key {
            name: "datasize",
            kind: Kind::Count(1, 1_000_000),
            default: "100",
            help: "bytes of a message",
        },
        Key {
            name: "work",
            kind: Kind::Time(1, 1_000_000_000),
            default: "1us",
            help: "CPU time beside the bytes",
        },
        Key {
            name: "buffer",
            kind: Kind::Count(1, 1_000_000),
            default: "277",
            help: "messages that a socket holds",
        },
    ],
    add,
};

/// A socket. The simulator runs the programs of one machine one after another, so they may share
/// it.
struct Socket {
    room: Object,
    messages: Object,
    /// The send times of the messages in it.
    sent: Mutex<VecDeque<u64>>,
}

struct Sender {
    sockets: Arc<[Socket]>,
    loops: u64,
    work: u64,
    at: usize,
    step: u8,
}

impl Program for Sender {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step = (step + 1) % 3;
        let socket = &self.sockets[self.at];
        match step {
            0 => Op::Down(socket.room),
            1 => Op::Run(self.work),
            // The last step of the last loop returns here once more, to end.
            2 if self.loops == 1 && self.at + 1 == self.sockets.len() => {
                self.step = 3;
                self.send(cx.now)
            }
            2 => {
                let sent = self.send(cx.now);
                self.at += 1;
                if self.at == self.sockets.len() {
                    self.at = 0;
                    self.loops = self.loops.saturating_sub(1);
                }
                sent
            }
            _ => Op::Exit,
        }
    }
}

impl Sender {
    fn send(&self, now: u64) -> Op {
        let socket = &self.sockets[self.at];
        socket
            .sent
            .lock()
            .expect("no task panics with it")
            .push_back(now);
        Op::Up {
            to: socket.messages,
            sync: true,
        }
    }
}

struct Receiver {
    sockets: Arc<[Socket]>,
    at: usize,
    /// Messages still to be received; `None` if there is no limit.
    left: Option<u64>,
    work: u64,
    step: u8,
}

impl Program for Receiver {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let socket = &self.sockets[self.at];
        let step = self.step;
        self.step = (step + 1) % 5;
        match step {
            0 if self.left == Some(0) => Op::Exit,
            0 => {
                self.left = self.left.map(|left| left - 1);
                Op::Down(socket.messages)
            }
            1 => Op::Run(self.work),
            2 => Op::Up {
                to: socket.room,
                sync: false,
            },
            3 => {
                let sent = socket
                    .sent
                    .lock()
                    .expect("no task panics with it")
                    .pop_front()
                    .unwrap_or(cx.now);
                Op::Response(cx.now - sent)
            }
            _ => Op::Done(1),
        }
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let whole = |key| stage.params.whole(key);
    let (groups, fds, loops, buffer) = (
        whole("groups"),
        whole("fds"),
        whole("loops"),
        whole("buffer"),
    );
    let work = whole("work") + whole("datasize") / 10;
    stage.room_for(2 * groups * fds)?;
    let counted = stage.group();
    for group in 0..groups {
        let socket = |_| Socket {
            room: stage.world.semaphore(buffer),
            messages: stage.world.semaphore(0),
            sent: Mutex::new(VecDeque::new()),
        };
        let sockets: Arc<[Socket]> = (0..fds).map(socket).collect();
        for at in 0..fds as usize {
            let left = (loops > 0).then_some(loops * fds);
            let program = Receiver {
                sockets: sockets.clone(),
                at,
                left,
                work,
                step: 0,
            };
            stage
                .world
                .task(Spawn::new(format!("{}-{group}r{at}", stage.name), program).group(counted));
        }
        for sender in 0..fds {
            let program = Sender {
                sockets: sockets.clone(),
                loops,
                work,
                at: 0,
                step: 0,
            };
            stage.world.task(
                Spawn::new(format!("{}-{group}s{sender}", stage.name), program).group(counted),
            );
        }
    }
    Ok(())
}
