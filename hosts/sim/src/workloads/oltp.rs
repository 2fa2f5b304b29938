// SPDX-License-Identifier: GPL-2.0-only
//! Clients of a database, each served by a thread of its own: sysbench's `oltp_read_write` with
//! MySQL, with which Ipanema (EuroSys '20, section 5.3) shows many wakeups and short locks.
//!
//! A client sends the queries of a transaction one after the other, and waits for each answer: 16
//! reads, 2 updates, each of which locks a row until the end, and the commit, which writes a log
//! under one lock and waits for the disk. A client begins the next transaction at once. One
//! operation is a transaction; the response is the time that it took.
//!
//! Deviation: each commit writes to the disk alone. Databases write several at once.
//!
//! Keys: `clients`, `query` (mean CPU time of a query, exponential), `rows` (those that are
//! updated), `io` (mean time of a write to disk).

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Key, Kind, Stage, Workload};
use crate::rng::Rng;
use crate::world::{Cx, Object, Op, Program, Spawn};

const US: u64 = 1_000;
const S: u64 = 1_000_000_000;

pub(super) const WORKLOAD: Workload = Workload {
    name: "oltp",
    help: "clients of a database, each served by a thread (sysbench oltp_read_write)",
    keys: &[
        Key {
            name: "clients",
            kind: Kind::Count(1, 50_000),
            default: "cpus",
            help: "clients",
        },
        Key {
            name: "query",
            kind: Kind::Time(10, S),
            default: "80us",
            help: "mean CPU time of a query",
        },
        Key {
            name: "rows",
            kind: Kind::Count(2, 1_000_000),
            default: "1000",
            help: "rows that are updated",
        },
        Key {
            name: "io",
            kind: Kind::Time(0, S),
            default: "200us",
            help: "mean time of a write to disk",
        },
    ],
    add,
};

const READS: u32 = 16;
/// Queries of a transaction: the reads, two updates, and the commit.
const QUERIES: u32 = READS + 3;
/// CPU time of the client for a query, and of a commit under the log's lock, ns.
const ASK: u64 = 15 * US;
const LOG: u64 = 5 * US;

/// The semaphores of a connection.
#[derive(Clone, Copy)]
struct Connection {
    query: Object,
    answer: Object,
}

struct Client {
    connection: Connection,
    asked: u32,
    step: u8,
    began: u64,
}

impl Program for Client {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let step = self.step;
        self.step += 1;
        match step {
            0 => {
                if self.asked == 0 {
                    self.began = cx.now;
                }
                self.asked += 1;
                Op::Run(ASK)
            }
            1 => Op::Up {
                to: self.connection.query,
                sync: true,
            },
            2 => {
                if self.asked < QUERIES {
                    self.step = 0;
                }
                Op::Down(self.connection.answer)
            }
            3 => Op::Response(cx.now - self.began),
            _ => {
                (self.step, self.asked) = (0, 0);
                Op::Done(1)
            }
        }
    }
}

/// What all server threads share.
struct Database {
    rows: Vec<Object>,
    log: Object,
    query: u64,
    io: u64,
}

struct Server {
    connection: Connection,
    database: Arc<Database>,
    /// Of this transaction.
    answered: u32,
    /// The two rows of this transaction. All transactions lock the lower one first, so that none
    /// waits for another in a circle.
    rows: [usize; 2],
    plan: VecDeque<Op>,
}

impl Server {
    /// What the server does for the next query, until the next one comes.
    fn serve(&mut self, rng: &mut Rng) {
        let database = &self.database;
        let unlock = |of: Object| Op::Up {
            to: of,
            sync: false,
        };
        let plan = &mut self.plan;
        plan.push_back(Op::Down(self.connection.query));
        match self.answered {
            0..READS => {}
            READS => {
                let count = database.rows.len() as u64;
                let one = rng.between(0, count - 1);
                let other = (one + rng.between(1, count - 1)) % count;
                self.rows = [one.min(other) as usize, one.max(other) as usize];
                plan.push_back(Op::Down(database.rows[self.rows[0]]));
            }
            _ if self.answered < QUERIES - 1 => {
                plan.push_back(Op::Down(database.rows[self.rows[1]]));
            }
            _ => {
                plan.push_back(Op::Down(database.log));
                plan.push_back(Op::Run(LOG));
                plan.push_back(unlock(database.log));
                plan.push_back(Op::Sleep(rng.exponential(database.io)));
                plan.extend(self.rows.map(|row| unlock(database.rows[row])));
            }
        }
        plan.push_back(Op::Run(rng.exponential(database.query).max(1)));
        plan.push_back(Op::Up {
            to: self.connection.answer,
            sync: true,
        });
        self.answered = (self.answered + 1) % QUERIES;
    }
}

impl Program for Server {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if self.plan.is_empty() {
            self.serve(cx.rng);
        }
        self.plan.pop_front().expect("each query has a plan")
    }
}

fn add(stage: &mut Stage<'_>) -> Result<(), String> {
    let whole = |key| stage.params.whole(key);
    let (clients, rows) = (whole("clients"), whole("rows"));
    let (query, io) = (whole("query"), whole("io"));
    stage.room_for(2 * clients)?;
    let group = stage.group();
    let database = Arc::new(Database {
        rows: (0..rows).map(|_| stage.world.semaphore(1)).collect(),
        log: stage.world.semaphore(1),
        query,
        io,
    });
    for number in 0..clients {
        let connection = Connection {
            query: stage.world.semaphore(0),
            answer: stage.world.semaphore(0),
        };
        let client = Client {
            connection,
            asked: 0,
            step: 0,
            began: 0,
        };
        let server = Server {
            connection,
            database: database.clone(),
            answered: 0,
            rows: [0; 2],
            plan: VecDeque::new(),
        };
        let name = &stage.name;
        let client = Spawn::new(format!("{name}-client-{number}"), client);
        let server = Spawn::new(format!("{name}-server-{number}"), server);
        stage.world.task(client.group(group));
        stage.world.task(server.group(group));
    }
    Ok(())
}
