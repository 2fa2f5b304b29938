// SPDX-License-Identifier: GPL-2.0-only
//! Chooses the CPU that continues at each scheduling point, for the crate `shuttle`, which runs the
//! CPUs as coroutines.
//!
//! Shuttle's own schedulers have one seed for a series of schedules, and its priority scheduler
//! learns from earlier schedules. Here each schedule must depend on its own seed alone, so that it
//! can be reproduced.

use crate::random::Random;
use crate::seed::{Seed, Way};
use crate::world;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Supplies the seeds of the schedules, one after another.
pub trait Source {
    /// The next seed, or `None` when there are no more.
    fn next(&mut self) -> Option<Seed>;
    /// Notes that a schedule has ended, and the decisions made in it.
    fn ended(&mut self, decisions: &[Decision]);
}

/// A scheduling point at which more than one thread of shuttle could continue.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// The threads that could continue, one bit each.
    pub could: u8,
    /// The thread that continued.
    pub chosen: u8,
}

pub struct Chooser<S> {
    source: S,
    how: How,
    decisions: Vec<Decision>,
}

/// How the next thread is chosen, with the state of the current schedule.
enum How {
    Nothing,
    Random {
        random: Random,
        stay: usize,
    },
    Pct {
        random: Random,
        priorities: [i64; THREADS],
        changes: Vec<u64>,
        lowest: i64,
        step: u64,
    },
    All {
        moves: Vec<(u32, u8)>,
        count: u32,
    },
}

/// One thread for each CPU, and one that begins and ends the schedule.
const THREADS: usize = 5;

impl<S> Chooser<S> {
    pub fn new(source: S) -> Self {
        Self {
            source,
            how: How::Nothing,
            decisions: Vec::new(),
        }
    }
}

fn how(seed: &Seed) -> How {
    let random = Random::new(seed.number ^ 0x5ced);
    match seed.way {
        Way::Random => {
            let stay = [1, 2, 4, 16][random.below(4)];
            How::Random { random, stay }
        }
        Way::Pct(depth) => {
            let mut priorities = [0; THREADS];
            for at in 0..THREADS {
                let other = random.below(at + 1);
                priorities[at] = priorities[other];
                priorities[other] = at as i64;
            }
            // The length of the schedule is not known, so it is drawn. It must not depend on the
            // number of events: the same seed with fewer events must give the beginning of the same
            // schedule.
            let length = (seed.cpus * 16) << random.below(6);
            let changes = (1..depth).map(|_| random.below(length) as u64).collect();
            How::Pct {
                random,
                priorities,
                changes,
                lowest: -1,
                step: 0,
            }
        }
        Way::All(_) => How::All {
            moves: seed.moves.clone(),
            count: 0,
        },
    }
}

impl How {
    fn choose(&mut self, could: u8, current: Option<u8>, gives_way: bool) -> u8 {
        let threads = || (0..THREADS as u8).filter(|thread| could & 1 << thread != 0);
        let going_on = current.filter(|&current| could & 1 << current != 0 && !gives_way);
        let any = |random: &Random| {
            threads()
                .nth(random.below(could.count_ones() as usize))
                .unwrap_or(0)
        };
        match self {
            Self::Nothing => threads().next().unwrap_or(0),
            Self::Random { random, stay } => match going_on.filter(|_| !random.once_in(*stay)) {
                Some(current) => current,
                None => any(random),
            },
            Self::Pct {
                random,
                priorities,
                changes,
                lowest,
                step,
            } => {
                *step += 1;
                if let Some(current) = current.filter(|_| changes.contains(step) || gives_way) {
                    priorities[current as usize] = *lowest;
                    *lowest -= 1;
                }
                let best = threads().max_by_key(|&thread| priorities[thread as usize]);
                best.unwrap_or_else(|| any(random))
            }
            Self::All { moves, count } => {
                let usual = going_on.or_else(|| threads().next()).unwrap_or(0);
                let moved = moves
                    .iter()
                    .find(|(decision, _)| decision == count)
                    .map(|&(_, thread)| thread);
                *count += 1;
                moved
                    .filter(|thread| could & 1 << thread != 0)
                    .unwrap_or(usual)
            }
        }
    }
}

impl<S: Source> Scheduler for Chooser<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        if !matches!(self.how, How::Nothing) {
            self.source.ended(&self.decisions);
        }
        self.decisions.clear();
        let seed = self.source.next()?;
        self.how = how(&seed);
        world::set_seed(seed);
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, tasks: &[&Task], current: Option<TaskId>, _: bool) -> Option<TaskId> {
        let number = |task: &&Task| usize::from(task.id()) as u8;
        // Shuttle does not know that a CPU waits for a lock, so such a CPU is excluded here.
        let waiting = world::waiting_threads();
        let could = tasks
            .iter()
            .map(number)
            .filter(|n| waiting & 1 << n == 0)
            .fold(0_u8, |set, n| set | 1 << n);
        let current = current.map(|task| usize::from(task) as u8);
        let gives_way = world::take_gives_way();
        let chosen = match could {
            0 => unreachable!("every CPU waits for a lock, which is found before"),
            one if one.is_power_of_two() => one.trailing_zeros() as u8,
            _ => {
                let chosen = self.how.choose(could, current, gives_way);
                self.decisions.push(Decision { could, chosen });
                chosen
            }
        };
        tasks
            .iter()
            .find(|task| number(task) == chosen)
            .map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}
