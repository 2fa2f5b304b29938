// SPDX-License-Identifier: GPL-2.0-only
//! Explores schedules, and shortens the story of a failure.

use crate::agent::Simulated;
use crate::apart::apart;
use crate::choose::{Chooser, Decision, Source};
use crate::coverage::{Coverage, Passed};
use crate::hint::Said;
use crate::random::Random;
use crate::seed::{Seed, Way};
use crate::story::{Finding, Line, Story};
use crate::table::TABLE;
use crate::world::{self, World};
use crate::{Options, Property, Subject};
use baton_native::Policy;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Schedules explored, without those that were tried for a shorter story.
    pub schedules: u64,
    /// Scheduling points in those schedules.
    pub points: u64,
    /// Hints and replies in those schedules; `None` if the policy takes no hints.
    pub said: Option<Said>,
    /// Coverage of those schedules.
    pub coverage: Coverage,
    /// Duration of the search.
    pub elapsed: Duration,
    /// The finding, with the shortest story that is known.
    pub story: Option<Story>,
    /// Number of lines of the first story.
    pub first_lines: usize,
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Schedules explored.
    pub schedules: u64,
    /// Time since the beginning.
    pub elapsed: Duration,
    /// Number of lines that the story has now, if something was found.
    pub lines: Option<usize>,
}

/// Number of schedules that one thread runs.
const BATCH: u64 = 1024;

/// The same while a story is shortened, with one size of machine.
const CHUNK: u64 = 32;

/// One of this many schedules is spent on the exhaustive search of a few small scripts.
const SYSTEMATIC: u64 = 8;

/// Limit of the crashes while a story is shortened. Each leaves its stacks behind, up to 4 MiB of
/// them if the story is recorded.
const MOST_CRASHES: usize = 20;

/// The result of one schedule.
#[derive(Clone)]
struct Ran {
    seed: Seed,
    decisions: Vec<Decision>,
    points: u64,
    said: Option<Said>,
    passed: Passed,
    finding: Option<Finding>,
    lines: Option<Vec<Line>>,
    has_crashed: bool,
}

/// The work of the thread; shuttle passes neither seeds nor results.
struct Job {
    subject: Subject,
    options: Arc<Options>,
    tell: bool,
    seeds: VecDeque<Seed>,
    /// Time after which no schedule is begun.
    until: Option<Instant>,
    ran: Vec<Ran>,
    error: Option<String>,
}

std::thread_local! {
    static JOB: RefCell<Option<Job>> = const { RefCell::new(None) };
}

fn with_job<R>(f: impl FnOnce(&mut Job) -> R) -> R {
    JOB.with_borrow_mut(|job| f(job.as_mut().expect("a job is under way")))
}

struct FromJob;

impl Source for FromJob {
    fn next(&mut self) -> Option<Seed> {
        with_job(|job| {
            let stop =
                job.error.is_some() || job.ran.last().is_some_and(|ran| ran.finding.is_some());
            if stop || job.until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            job.seeds.pop_front()
        })
    }

    fn ended(&mut self, decisions: &[Decision]) {
        with_job(|job| {
            job.ran
                .last_mut()
                .into_iter()
                .for_each(|ran| ran.decisions = decisions.to_vec())
        });
    }
}

fn config(tell: bool) -> shuttle::Config {
    let mut config = shuttle::Config::new();
    // Finding a source line takes more stack.
    config.stack_size = if tell { 4 << 20 } else { 256 << 10 };
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::None;
    config.silence_warnings = true;
    config
}

/// Runs schedules in order, until one finds something or the time is over.
fn run(
    subject: &Subject,
    options: &Options,
    seeds: Vec<Seed>,
    until: Option<Instant>,
    tell: bool,
) -> Result<Vec<Ran>, String> {
    let job = Job {
        subject: subject.clone(),
        options: Arc::new(options.clone()),
        tell,
        seeds: seeds.into(),
        until,
        ran: Vec::new(),
        error: None,
    };
    let explore = move || {
        match &job.subject {
            Subject::Policy(policy) => policy.install(Some(&TABLE)),
            Subject::Agent(_) => baton_enclave::install(&Simulated),
        }
        job.options
            .next
            .into_iter()
            .for_each(|next| next.install(Some(&TABLE)));
        JOB.set(Some(job));
        shuttle::Runner::new(Chooser::new(FromJob), config(tell)).run(run_one);
    };
    let (job, wreck) = apart(options.call_limit, explore, || {
        JOB.take().expect("the job is still there")
    });
    let Some(wreck) = wreck else {
        return job.error.map_or(Ok(job.ran), Err);
    };
    let mut ran = job.ran.clone();
    std::mem::forget(job);
    let crash = wreck.crash;
    let (world, finding, lines) = wreck.tell();
    if finding.is_none() {
        return Err(format!("what ends a process cannot be left out: {crash}"));
    }
    let (seed, points) = (world.seed.clone(), world.points.get());
    let passed = Passed::default();
    ran.push(Ran {
        seed,
        decisions: Vec::new(),
        points,
        said: None,
        passed,
        finding,
        lines,
        has_crashed: true,
    });
    Ok(ran)
}

fn run_one() {
    let (subject, options, tell) =
        with_job(|job| (job.subject.clone(), job.options.clone(), job.tell));
    let world = world::begin(options.clone(), tell);
    let seed = world.seed.clone();
    let made = world.set_up(&subject, &options.policy);
    if made.is_ok() && !world.over.get() {
        if options.steps.is_empty() {
            run_cpus(&world, options.next);
        } else {
            world.perform(&options.steps);
        }
        if !world.over.get() {
            world.drain();
        }
    }
    let points = world.points.get();
    let said = world.hears().then(|| world.said.take());
    let passed = world.passed();
    let (finding, lines) = world::end(world);
    with_job(|job| {
        job.error = made.err();
        job.ran.push(Ran {
            seed,
            decisions: Vec::new(),
            points,
            said,
            passed,
            finding,
            lines,
            has_crashed: false,
        });
    });
}

/// All CPUs at once.
fn run_cpus(world: &Rc<World>, next: Option<Policy>) {
    world.tell(crate::story::Kind::Part, || "all CPUs at once".into());
    world.here.set(None);
    world.alone.set(false);
    let cpu = |number| {
        move || {
            let world = world::world();
            world.run(number, next);
            world.running.set(world.running.get() - 1);
        }
    };
    world.running.set(world.nr_cpus());
    let threads = (0..world.nr_cpus()).map(|number| shuttle::thread::spawn(cpu(number)));
    let mut threads: Vec<_> = threads.collect();
    if world.agent.borrow().is_some() {
        let agent = || {
            let world = world::world();
            world.here.set(Some(world.nr_cpus()));
            world.poll();
        };
        threads.push(shuttle::thread::spawn(agent));
    }
    for thread in threads {
        thread
            .join()
            .unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    }
}

/// Installs shuttle's panic hook and signal handler before those of the policy and of this crate,
/// so that shuttle handles none of the policy's panics and signals.
fn set_hooks() {
    shuttle::Runner::new(
        shuttle::scheduler::RoundRobinScheduler::new(1),
        config(false),
    )
    .run(|| ());
}

/// The seed of the `index`th schedule.
fn seed(subject: &Subject, options: &Options, index: u64) -> Seed {
    let number = options.first.wrapping_add(index);
    let random = Random::new(number ^ 0x5eed);
    let way = [Way::Random, Way::Pct(2), Way::Random, Way::Pct(3)][(index % 4) as usize];
    let pick = |given: usize, from: &[usize]| {
        if given == 0 {
            from[random.below(from.len())]
        } else {
            given
        }
    };
    // An agent has a CPU of its own.
    let cpus: &[usize] = match subject {
        Subject::Policy(_) => &[2, 2, 3, 4],
        Subject::Agent(_) => &[2, 3, 3, 4],
    };
    let (cpus, tasks) = (
        pick(options.cpus(), cpus),
        pick(options.tasks, &[2, 3, 4, 5, 6]),
    );
    Seed {
        way,
        cpus,
        tasks,
        events: [3, 6, 10, 16][random.below(4)],
        number,
        moves: Vec::new(),
    }
}

/// All schedules of a few small scripts that differ from the default order in at most two
/// decisions, those with fewer differences first.
struct Systematic {
    left: VecDeque<Seed>,
}

impl Systematic {
    fn new(subject: &Subject, options: &Options) -> Self {
        let given = |given: usize| if given == 0 { 2 } else { given };
        // An agent has a CPU of its own.
        let cpus = match subject {
            Subject::Agent(_) if options.cpus() == 0 => 3,
            _ => given(options.cpus()),
        };
        let script = |number| Seed {
            way: Way::All(2),
            cpus,
            tasks: given(options.tasks),
            events: 3,
            number: options.first.wrapping_add(number),
            moves: Vec::new(),
        };
        Self {
            left: (0..4).map(script).collect(),
        }
    }

    fn follow(&mut self, ran: &Ran) {
        let Way::All(most) = ran.seed.way else { return };
        // Limits the memory; the queue is already long enough.
        if ran.seed.moves.len() >= usize::from(most) || self.left.len() > 100_000 {
            return;
        }
        let first = ran
            .seed
            .moves
            .last()
            .map_or(0, |&(decision, _)| decision as usize + 1);
        for (index, decision) in ran.decisions.iter().enumerate().skip(first) {
            for thread in (0..8)
                .filter(|thread| decision.could & 1 << thread != 0 && *thread != decision.chosen)
            {
                let mut seed = ran.seed.clone();
                seed.moves.push((index as u32, thread));
                self.left.push_back(seed);
            }
        }
    }
}

/// Explores schedules until something is found, or the limit is reached. The error says why there
/// was nothing to check.
pub fn check(
    subject: impl Into<Subject>,
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, String> {
    let subject = &subject.into();
    set_hooks();
    let start = Instant::now();
    let mut outcome = Outcome {
        schedules: 0,
        points: 0,
        said: None,
        coverage: Coverage::default(),
        elapsed: Duration::ZERO,
        story: None,
        first_lines: 0,
    };
    let until = start.checked_add(options.time);
    let mut systematic = Systematic::new(subject, options);
    let mut index = 0;
    while outcome.schedules < options.schedules && start.elapsed() < options.time {
        let room = (options.schedules - outcome.schedules).min(BATCH);
        let few = ((room / SYSTEMATIC) as usize).min(systematic.left.len());
        let mut seeds: Vec<Seed> = systematic.left.drain(..few).collect();
        let many = room - few as u64;
        seeds.extend((index..index + many).map(|index| seed(subject, options, index)));
        index += many;
        let ran = run(subject, options, seeds, until, false)?;
        for (number, ran) in (outcome.schedules + 1..).zip(&ran) {
            outcome.coverage.add(number, &ran.passed);
        }
        outcome.schedules += ran.len() as u64;
        outcome.points += ran.iter().map(|ran| ran.points).sum::<u64>();
        ran.iter()
            .filter_map(|ran| ran.said.as_ref())
            .for_each(|said| outcome.said.get_or_insert_default().add(said));
        ran.iter().for_each(|ran| systematic.follow(ran));
        outcome.elapsed = start.elapsed();
        progress(&Progress {
            schedules: outcome.schedules,
            elapsed: outcome.elapsed,
            lines: None,
        });
        let failed = ran
            .last()
            .and_then(|ran| ran.finding.as_ref().map(|finding| (&ran.seed, finding)));
        if let Some((seed, finding)) = failed {
            let property = finding.property;
            let mut story = tell(subject, options, seed.clone())?;
            // A failure that depends on addresses may not recur with the story recorded, but it did
            // occur.
            story.finding.get_or_insert_with(|| finding.clone());
            outcome.first_lines = story.abridged().len();
            outcome.story = Some(shorten(
                subject, options, story, property, &outcome, progress,
            )?);
            break;
        }
    }
    Ok(outcome)
}

/// Reproduces the story of one schedule exactly.
pub fn replay(subject: impl Into<Subject>, options: &Options, seed: Seed) -> Result<Story, String> {
    let subject = &subject.into();
    set_hooks();
    tell(subject, options, seed)
}

fn tell(subject: &Subject, options: &Options, seed: Seed) -> Result<Story, String> {
    let ran = run(subject, options, vec![seed], None, true)?
        .pop()
        .expect("one seed is one schedule");
    Ok(Story {
        policy: subject.name(),
        seed: ran.seed,
        finding: ran.finding,
        lines: ran.lines.unwrap_or_default(),
    })
}

/// Looks for other schedules that violate the same property on fewer CPUs, with fewer tasks and
/// events, and returns the one with the shortest story.
fn shorten(
    subject: &Subject,
    options: &Options,
    mut best: Story,
    property: Property,
    outcome: &Outcome,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Story, String> {
    let start = Instant::now();
    let (cpus, tasks, events) = (best.seed.cpus, best.seed.tasks, best.seed.events);
    let crashes = Cell::new(0);
    let mut try_seeds = |seeds: Vec<Seed>, best: &mut Story| -> Result<(), String> {
        let ran = run(subject, options, seeds, None, false)?;
        crashes.set(crashes.get() + ran.iter().filter(|ran| ran.has_crashed).count());
        let same = |ran: &&Ran| {
            ran.finding
                .as_ref()
                .is_some_and(|finding| finding.property == property)
        };
        let Some(ran) = ran.last().filter(same) else {
            return Ok(());
        };
        let story = tell(subject, options, ran.seed.clone())?;
        if story.finding.is_some() && story.abridged().len() < best.abridged().len() {
            *best = story;
            let elapsed = outcome.elapsed + start.elapsed();
            progress(&Progress {
                schedules: outcome.schedules,
                elapsed,
                lines: Some(best.abridged().len()),
            });
        }
        Ok(())
    };
    // The same schedule with fewer events: events that begin after the failure are not needed.
    let earlier = (1..events)
        .map(|events| Seed {
            events,
            ..best.seed.clone()
        })
        .collect();
    try_seeds(earlier, &mut best)?;
    let fewest = if options.topology.is_empty() {
        cpus.min(2)
    } else {
        cpus
    };
    let mut sizes: Vec<_> = (fewest..=cpus)
        .flat_map(|c| (1..=tasks).flat_map(move |t| (1..=events).map(move |e| (c, t, e))))
        .collect();
    sizes.sort_by_key(|&(c, t, e)| (c * e + 2 * t, c, t));
    for round in 0.. {
        for &(cpus, tasks, events) in &sizes {
            if start.elapsed() > options.shorten || crashes.get() >= MOST_CRASHES {
                return Ok(best);
            }
            // Larger machines seldom give a shorter story.
            if cpus * events + tasks > best.seed.cpus * best.seed.events + best.seed.tasks {
                break;
            }
            let seed = |n: u64| Seed {
                way: [Way::Random, Way::Pct(2), Way::Random, Way::Pct(3)][(n % 4) as usize],
                cpus,
                tasks,
                events,
                number: options.first.wrapping_add(round * CHUNK + n),
                moves: Vec::new(),
            };
            try_seeds((0..CHUNK).map(seed).collect(), &mut best)?;
        }
    }
    Ok(best)
}
