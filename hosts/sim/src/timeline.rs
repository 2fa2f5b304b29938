// SPDX-License-Identifier: GPL-2.0-only
//! The state of each CPU over time, for the page of `baton report`. The time of a run is divided
//! into columns, and the CPUs into rows of neighbours. Each cell has only the share of each state
//! in its time. So the memory is bounded for any length of run and any size of machine.
//!
//! The cells of a row as text:
//!
//! ```text
//! cells = "" / run *("," run)          in the order of time
//! run   = cell [ "*" count ]           number of equal cells, decimal, at least 1
//! cell  = 4 hexadecimal digits         parts of 15: idle while work waits, busy, higher class,
//!                                      offline; the rest is idle
//! ```

use serde::{Deserialize, Serialize};

use crate::trace::{Event, Sink};
use crate::world::TaskRef;

/// Limit of the columns of a timeline.
pub const COLUMNS: usize = 2000;
/// Limit of the rows of a timeline. With more CPUs, a row stands for several.
pub const ROWS: usize = 256;
/// From this number of rows on, there are half as many columns.
const MANY_ROWS: usize = 64;

/// The state of a CPU. The order is that of a cell's digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Waste,
    Busy,
    Higher,
    Offline,
    Idle,
}

const KINDS: usize = 5;

/// The state of each CPU over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Width of a column, ns. The last may be shorter.
    pub column_ns: u64,
    /// Number of columns.
    pub columns: u32,
    /// Rows, ordered by first CPU.
    pub rows: Vec<Row>,
    /// By column: the most tasks that waited for a CPU at the same time.
    pub waiting: Vec<u32>,
}

/// One or more consecutive CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The first CPU.
    pub first: u32,
    /// Number of CPUs.
    pub cpus: u32,
    /// Their states: see the grammar at the head of this module's source.
    pub cells: String,
}

/// CPU time of all CPUs together, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Idle while a task waited for a CPU.
    pub idle_while_waiting: u64,
    /// Running tasks of ours.
    pub busy: u64,
    /// Running tasks of higher classes.
    pub higher: u64,
    /// Offline.
    pub offline: u64,
    /// Idle, whether or not a task waited.
    pub idle: u64,
    /// The lesser of idle CPUs and waiting tasks, over time.
    pub wasted: u64,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    running: bool,
    higher: bool,
    offline: bool,
    /// The time up to which its state is credited, and the value of `Collector::waited` then.
    since: u64,
    waited: u64,
}

impl Cpu {
    fn doing(&self) -> Doing {
        match self {
            Self { offline: true, .. } => Doing::Offline,
            Self { higher: true, .. } => Doing::Higher,
            Self { running: true, .. } => Doing::Busy,
            _ => Doing::Idle,
        }
    }
}

/// Collects a [`Timeline`].
pub struct Collector {
    cpus: Vec<Cpu>,
    cpus_per_row: usize,
    /// By row: times of the current column.
    times: Vec<[u64; KINDS]>,
    /// By row, then by column: the finished columns, in parts of 255.
    cells: Vec<Vec<[u8; KINDS]>>,
    waiting_most: Vec<u32>,
    totals: [u64; KINDS],
    wasted: u64,
    columns: usize,
    column_ns: u64,
    column_ends: u64,
    now: u64,
    waiting: u32,
    waiting_now_most: u32,
    idle: u32,
    /// How long at least one task has waited. With it an idle period is divided in one step,
    /// regardless of the events within it.
    waited: u64,
}

impl Collector {
    /// A collector for a machine with this number of CPUs, all idle, and for a run of this expected
    /// duration. If the run is longer, its columns become wider.
    pub fn new(cpus: usize, duration_ns: u64) -> Self {
        let cpus_per_row = cpus.div_ceil(ROWS).max(1);
        let rows = cpus.div_ceil(cpus_per_row);
        let columns = if rows >= MANY_ROWS {
            COLUMNS / 2
        } else {
            COLUMNS
        };
        let column_ns = duration_ns.div_ceil(columns as u64).max(1);
        Self {
            cpus: vec![Cpu::default(); cpus],
            cpus_per_row,
            times: vec![[0; KINDS]; rows],
            cells: vec![Vec::with_capacity(columns); rows],
            waiting_most: Vec::with_capacity(columns),
            totals: [0; KINDS],
            wasted: 0,
            columns,
            column_ns,
            column_ends: column_ns,
            now: 0,
            waiting: 0,
            waiting_now_most: 0,
            idle: cpus as u32,
            waited: 0,
        }
    }

    /// Ends the run at this time.
    pub fn finish(mut self, now: u64) -> (Timeline, Times) {
        self.advance(now);
        // Twice if the first call only makes room.
        while self.now + self.column_ns > self.column_ends {
            self.end_column();
        }
        let rows = self.cells.iter().enumerate().map(|(at, cells)| {
            let first = at * self.cpus_per_row;
            let cpus = self.cpus_per_row.min(self.cpus.len() - first);
            Row {
                first: first as u32,
                cpus: cpus as u32,
                cells: encode(cells),
            }
        });
        let timeline = Timeline {
            column_ns: self.column_ns,
            columns: self.waiting_most.len() as u32,
            rows: rows.collect(),
            waiting: self.waiting_most,
        };
        let [waste, busy, higher, offline, idle] = self.totals;
        let idle = idle + waste;
        (
            timeline,
            Times {
                idle_while_waiting: waste,
                busy,
                higher,
                offline,
                idle,
                wasted: self.wasted,
            },
        )
    }

    fn advance(&mut self, now: u64) {
        while now >= self.column_ends {
            self.pass_to(self.column_ends);
            self.end_column();
        }
        self.pass_to(now);
    }

    fn pass_to(&mut self, now: u64) {
        let passed = now.saturating_sub(self.now);
        if self.waiting > 0 {
            self.waited += passed;
        }
        self.wasted += passed * u64::from(self.waiting.min(self.idle));
        self.now += passed;
    }

    /// Credits the state of a CPU until now.
    fn credit(&mut self, cpu: usize) {
        let Some(state) = self.cpus.get_mut(cpu) else {
            return;
        };
        let passed = self.now - state.since;
        let waste = if state.doing() == Doing::Idle {
            self.waited - state.waited
        } else {
            0
        };
        let doing = state.doing() as usize;
        (state.since, state.waited) = (self.now, self.waited);
        for times in [&mut self.times[cpu / self.cpus_per_row], &mut self.totals] {
            times[Doing::Waste as usize] += waste;
            times[doing] += passed - waste;
        }
    }

    /// Ends the current column and appends it to the others. If there is no room, makes room
    /// instead, and doubles the length of the current column.
    fn end_column(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.credit(cpu);
        }
        if self.waiting_most.len() == self.columns {
            self.halve();
            self.column_ends += self.column_ns;
            self.column_ns *= 2;
            return;
        }
        for (times, cells) in self.times.iter_mut().zip(&mut self.cells) {
            cells.push(parts(*times, 255));
            *times = [0; KINDS];
        }
        self.waiting_most.push(self.waiting_now_most);
        self.waiting_now_most = self.waiting;
        self.column_ends += self.column_ns;
    }

    /// Merges each two columns into one.
    fn halve(&mut self) {
        for cells in &mut self.cells {
            let halved = cells.chunks(2).map(|pair| {
                let sum =
                    std::array::from_fn(|kind| pair.iter().map(|cell| u64::from(cell[kind])).sum());
                parts(sum, 255)
            });
            *cells = halved.collect();
        }
        self.waiting_most = self
            .waiting_most
            .chunks(2)
            .map(|pair| pair[0].max(pair[pair.len() - 1]))
            .collect();
    }

    fn change(&mut self, cpu: u32, change: impl FnOnce(&mut Cpu)) {
        self.credit(cpu as usize);
        if let Some(state) = self.cpus.get_mut(cpu as usize) {
            change(state);
        }
    }
}

impl Sink for Collector {
    fn task(&mut self, _: TaskRef, _: &str, _: &str) {}

    fn event(&mut self, now: u64, event: &Event) {
        self.advance(now);
        match *event {
            Event::Switch { cpu, next, .. } => {
                self.change(cpu, |state| state.running = next.is_some())
            }
            Event::Higher { cpu, begins } => self.change(cpu, |state| state.higher = begins),
            Event::Online { cpu, online } => self.change(cpu, |state| state.offline = !online),
            Event::Load { waiting, idle } => {
                (self.waiting, self.idle) = (waiting, idle);
                self.waiting_now_most = self.waiting_now_most.max(waiting);
            }
            Event::New { .. }
            | Event::Wake { .. }
            | Event::Fault { .. }
            | Event::Upgrade { .. } => {}
        }
    }
}

/// Divides `whole` in proportion to the times, by largest remainders, so that the sum is exact.
/// Idle gets all of it if all times are 0.
fn parts(times: [u64; KINDS], whole: u8) -> [u8; KINDS] {
    let sum: u128 = times.iter().map(|&time| u128::from(time)).sum();
    let mut shares = [0; KINDS];
    if sum == 0 {
        shares[Doing::Idle as usize] = whole;
        return shares;
    }
    let scaled = times.map(|time| u128::from(time) * u128::from(whole));
    shares = scaled.map(|time| (time / sum) as u8);
    let mut by_remainder: [usize; KINDS] = std::array::from_fn(|kind| kind);
    by_remainder.sort_by_key(|&kind| std::cmp::Reverse(scaled[kind] % sum));
    let missing = whole - shares.iter().sum::<u8>();
    by_remainder
        .iter()
        .take(missing.into())
        .for_each(|&kind| shares[kind] += 1);
    shares
}

fn encode(cells: &[[u8; KINDS]]) -> String {
    let digits = |cell: &[u8; KINDS]| parts(cell.map(u64::from), 15);
    let mut text = String::new();
    for run in cells
        .iter()
        .map(digits)
        .collect::<Vec<_>>()
        .chunk_by(|a, b| a == b)
    {
        if !text.is_empty() {
            text.push(',');
        }
        let [waste, busy, higher, offline, _] = run[0];
        text += &format!("{waste:x}{busy:x}{higher:x}{offline:x}");
        if run.len() > 1 {
            text += &format!("*{}", run.len());
        }
    }
    text
}

impl Timeline {
    /// The cells of its rows: parts of 15 of idle while work waits, busy, higher class, offline,
    /// idle. An error names the row that is wrong.
    pub fn cells(&self) -> Result<Vec<Vec<[u8; KINDS]>>, String> {
        let columns = self.columns as usize;
        if columns > COLUMNS || self.rows.len() > ROWS || self.waiting.len() != columns {
            return Err(format!(
                "the timeline has {columns} columns, {} rows, {} counts of waiting \
                tasks; there are at most {COLUMNS} columns and {ROWS} rows, and a count for each \
                column",
                self.rows.len(),
                self.waiting.len()
            ));
        }
        let row = |row: &Row| {
            decode(&row.cells, columns)
                .map_err(|why| format!("the row of CPU {}: {why}", row.first))
        };
        self.rows.iter().map(row).collect()
    }
}

fn decode(text: &str, columns: usize) -> Result<Vec<[u8; KINDS]>, String> {
    let mut cells = Vec::new();
    for run in text.split(',').filter(|_| !text.is_empty()) {
        let wrong = || format!("'{run}' is no run of cells");
        let (cell, count) = run.split_once('*').unwrap_or((run, "1"));
        let digits: Option<Vec<u8>> = cell
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect();
        let [waste, busy, higher, offline] = digits.ok_or_else(wrong)?[..] else {
            return Err(wrong());
        };
        let idle = 15_u8
            .checked_sub(waste + busy + higher + offline)
            .ok_or_else(wrong)?;
        let count: usize = count
            .parse()
            .ok()
            .filter(|&count| count > 0)
            .ok_or_else(wrong)?;
        if count > columns - cells.len() {
            return Err(format!("it is longer than {columns} columns"));
        }
        cells.extend(std::iter::repeat_n(
            [waste, busy, higher, offline, idle],
            count,
        ));
    }
    if cells.len() == columns {
        Ok(cells)
    } else {
        Err(format!(
            "it has {} cells for {columns} columns",
            cells.len()
        ))
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
