// SPDX-License-Identifier: GPL-2.0-only
//! Carries out the runs of a command, on all CPUs of this machine.

use std::fs;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use baton_sim::detail::{self, LIMIT_OF_ALL};
use baton_sim::outcome::{Names, Outcome};
use baton_sim::parallel::side_by_side;
use baton_sim::perfetto::Perfetto;
use baton_sim::report::Run;
use baton_sim::timeline::Collector;
use baton_sim::trace::{Event, Sink};
use baton_sim::world::{Happening, TaskRef, World};
use baton_sim::{AgentSpec, Config, Noise, PolicySpec, SimError, UnderWay};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Offline, Part, Party, Sim};
use baton_bench::simulate::native_agent;
use baton_control::error::{Error, Result};
use baton_control::names;
use baton_control::status::Fault;

/// A run to be made.
#[derive(Clone)]
pub struct Job {
    config: Config,
    policy: String,
    topology: String,
    workload: String,
    offline: Vec<Offline>,
    /// Time, policy, and the version that replaces it.
    upgrades: Vec<(u64, usize, usize)>,
    /// The part that is kept in detail, and its maximum size in bytes. `None` for further seeds.
    detail: Option<(Part, usize)>,
}

/// A completed run.
pub struct Done {
    pub run: Run,
    pub faults: Vec<Fault>,
    /// The refused changes of threads' states, of a policy in C: a line for each place in its
    /// source.
    pub wrong_moves: Vec<String>,
}

/// The file of a trace.
pub struct Traced {
    pub out: BufWriter<File>,
    pub path: PathBuf,
}

/// The file of a recording.
pub struct Recorded<'a> {
    pub path: &'a Path,
    /// Interval of checkpoints in simulated time.
    pub checkpoint: Option<Duration>,
}

impl Job {
    pub fn all(args: &Sim) -> Result<Vec<Self>> {
        let parties: Vec<Vec<Party>> = match &args.sweep {
            _ if !args.compare.is_empty() => args
                .compare
                .iter()
                .map(|party| vec![party.clone()])
                .collect(),
            None => vec![args.policies.clone()],
            Some(sweep) => {
                let with = |value: &String| {
                    let mut parties = args.policies.clone();
                    let options = &mut parties.last_mut().expect("there is one").options;
                    *options = join(options, &sweep.key, value);
                    parties
                };
                sweep.values.iter().map(with).collect()
            }
        };
        let seeds = |job: Self| {
            (0..args.seeds).map(move |number| {
                let mut job = job.clone();
                job.config.seed = args.seed.wrapping_add(number);
                job.config.under_way = Arc::default();
                job.detail = job.detail.filter(|_| number == 0);
                job
            })
        };
        let jobs: Result<Vec<_>> = parties
            .iter()
            .map(|parties| Self::new(args, parties))
            .collect();
        let mut jobs = jobs?;
        let limit = LIMIT_OF_ALL / jobs.len().max(1);
        jobs.iter_mut()
            .for_each(|job| job.detail = Some((args.detail.clone(), limit)));
        Ok(jobs.into_iter().flat_map(seeds).collect())
    }

    fn new(args: &Sim, parties: &[Party]) -> Result<Self> {
        let mut config = Config::new(args.topology.topology.clone());
        for party in parties {
            config.policies.push(PolicySpec {
                policy: baton_build::native(&party.policy)?,
                options: party.options.clone(),
            });
        }
        config.agent = args.agent.as_ref().map(agent).transpose()?;
        config.agent_cpu = args.agent_cpu;
        config.jitter = args.jitter;
        config.duration = args.duration.as_nanos() as u64;
        config.stall = args.stall * 1_000_000;
        config.max_tasks = args.max_tasks;
        config.idle_states = args.idle_states.0;
        let all: Vec<String> = config
            .policies
            .iter()
            .map(|spec| spec.policy.name())
            .chain(config.agent.iter().map(|agent| agent.name.clone()))
            .collect();
        for assign in &args.assign {
            let policy = names::policy(&assign.policy).unwrap_or_default();
            let place = all.iter().position(|name| *name == policy).ok_or_else(|| {
                Error::user(
                    format!("{} is none of the policies of this run", assign.policy),
                    format!("they are: {}", all.join(", ")),
                )
            })?;
            config.assign.push((assign.group.clone(), place));
        }
        for cost in &args.cost {
            let mut costs = config.costs.by_name();
            let named = costs.iter_mut().find(|(name, _)| *name == cost.name);
            *named.expect("its name was looked at").1 = cost.ns;
        }
        for noise in &args.noise {
            let Noise {
                higher_every,
                higher_for,
                interrupt_every,
                interrupt_for,
            } = &mut config.noise;
            let (every, length) = if noise.is_interrupt {
                (interrupt_every, interrupt_for)
            } else {
                (higher_every, higher_for)
            };
            (*every, *length) = (noise.every, noise.length);
        }
        let mut upgrades = Vec::new();
        for swap in &args.upgrade {
            let version = baton_build::native(&swap.policy)?;
            let place = all
                .iter()
                .position(|name| *name == version.name())
                .ok_or_else(|| {
                    let what = format!(
                        "{} is a version of {}, which is none of the policies of this run",
                        swap.policy,
                        version.name()
                    );
                    Error::user(what, format!("they are: {}", all.join(", ")))
                })?;
            config.versions.push(version);
            upgrades.push((swap.at, place, config.versions.len() - 1));
        }
        for offline in &args.offline {
            if config.topology.cpus().len() == 1 {
                return Err(Error::user(
                    "the only CPU cannot go offline",
                    "give the machine more: --topology 1x2x1",
                ));
            }
            if args.agent.is_some() && offline.cpu == args.agent_cpu {
                return Err(Error::user(
                    format!("the agent polls on CPU {}", offline.cpu),
                    "take another CPU offline, or give the agent another one: --agent-cpu",
                ));
            }
            if offline.cpu as usize >= config.topology.cpus().len() {
                return Err(Error::user(
                    format!("there is no CPU {}", offline.cpu),
                    "the first is 0; see --topology",
                ));
            }
        }
        let name = |party: &Party| {
            if party.options.is_empty() {
                party.policy.clone()
            } else {
                format!("{}:{}", party.policy, party.options)
            }
        };
        let agent = args.agent.iter();
        let shown = parties
            .iter()
            .map(name)
            .chain(agent.map(|party| format!("agent {}", name(party))));
        Ok(Self {
            config,
            policy: shown.collect::<Vec<_>>().join(" "),
            topology: args.topology.name.clone(),
            workload: args.workload.clone(),
            offline: args.offline.clone(),
            upgrades,
            detail: None,
        })
    }

    fn world(&self) -> Result<World> {
        let mut world = World::new();
        let cpus = self.config.topology.cpus().len();
        baton_sim::workloads::build(
            &self.workload,
            self.config.seed,
            cpus,
            &read_file,
            &mut world,
        )
        .map_err(|why| Error::user(why, "see `baton sim --workloads` for what there is"))?;
        if let Some((group, _)) = self
            .config
            .assign
            .iter()
            .find(|(group, _)| !world.has_group(group))
        {
            let groups: Vec<&str> = world.group_names().collect();
            let what = format!("the workload has no group {group}");
            return Err(Error::user(
                what,
                format!("its groups are: {}", groups.join(", ")),
            ));
        }
        for offline in &self.offline {
            world.happens(offline.from, Happening::Online(offline.cpu, false));
            world.happens(offline.to, Happening::Online(offline.cpu, true));
        }
        for &(at, policy, version) in &self.upgrades {
            world.happens(at, Happening::Upgrade(policy, version));
        }
        Ok(world)
    }

    /// Runs, and writes the requested trace and recording. For `baton report` the run has a
    /// timeline and a detail (`with_timeline`).
    pub fn run(
        &self,
        with_timeline: bool,
        trace: Option<Traced>,
        record: Option<Recorded<'_>>,
    ) -> Result<Done> {
        let cpus = self.config.topology.cpus().len();
        let (perfetto, path) = trace.map_or((None, PathBuf::new()), |to| {
            (Some(Perfetto::new(to.out, cpus)), to.path)
        });
        let timeline = with_timeline.then(|| Collector::new(cpus, self.config.duration));
        let detail = self.detail.as_ref().filter(|_| with_timeline);
        let detail =
            detail.map(|(part, limit)| detail::Collector::new(cpus, part.from..part.to, *limit));
        let mut sinks = Sinks {
            perfetto,
            timeline,
            detail,
        };
        let is_wanted = sinks.perfetto.is_some() || sinks.timeline.is_some();
        let sink = is_wanted.then_some(&mut sinks as &mut dyn Sink);
        let outcome = match record {
            None => self.watched(
                |world| baton_sim::run(&self.config, world, sink),
                Path::new(""),
            )?,
            Some(record) => self.record(sink, &record)?,
        };
        if let Some(perfetto) = sinks.perfetto {
            let finished = perfetto.finish(outcome.stats.duration);
            finished.map_err(|e| Error::file(format!("writing {}", path.display()), &e))?;
        }
        let mut done = self.done(&outcome, sinks.timeline);
        done.run.detail = sinks
            .detail
            .and_then(|detail| detail.finish(outcome.stats.duration));
        Ok(done)
    }

    fn record(&self, sink: Option<&mut dyn Sink>, to: &Recorded<'_>) -> Result<Outcome> {
        if self.config.policies.len() != 1 {
            return Err(Error::user(
                "a recording is of one policy",
                "give one, or leave out --record",
            ));
        }
        let policy = &self.config.policies[0].policy;
        if to.checkpoint.is_some() && policy.ops().reregister_save.is_none() {
            return Err(Error::user(
                format!(
                    "{} saves no state, so there can be no checkpoints",
                    policy.name()
                ),
                "leave out --checkpoint; docs/upgrade.md says how a policy saves its state",
            ));
        }
        let file = File::create(to.path)
            .map_err(|e| Error::file(format!("making {}", to.path.display()), &e))?;
        let out = Box::new(BufWriter::new(file));
        let every = to.checkpoint.map(|time| time.as_nanos() as u64);
        self.watched(
            |world| baton_sim::record(&self.config, world, sink, out, every),
            to.path,
        )
    }

    /// Runs, and watches for calls that do not return. `record` is the file of a recording.
    fn watched(
        &self,
        run: impl FnOnce(World) -> std::result::Result<Outcome, SimError>,
        record: &Path,
    ) -> Result<Outcome> {
        let _running = watched(&self.config, &self.policy);
        run(self.world()?).map_err(|error| failed(error, record))
    }

    fn done(&self, outcome: &Outcome, timeline: Option<Collector>) -> Done {
        let names = Names {
            policy: self.policy.clone(),
            workload: self.workload.clone(),
            topology: self.topology.clone(),
        };
        done(&self.config, outcome, names, timeline)
    }
}

/// The result of a run.
pub fn done(config: &Config, outcome: &Outcome, names: Names, timeline: Option<Collector>) -> Done {
    let timeline = timeline.map(|timeline| timeline.finish(outcome.stats.duration).0);
    let faults: Vec<Fault> = outcome
        .faults
        .iter()
        .map(|fault| Fault {
            stopped: true,
            ..Fault::new(fault, None)
        })
        .collect();
    let lines = faults.iter().map(|fault| {
        format!(
            "{}: {} in {}: {}",
            fault.policy, fault.kind, fault.method, fault.message
        )
    });
    Done {
        run: outcome.report(config, names, lines.collect(), timeline),
        wrong_moves: outcome
            .wrong_moves
            .iter()
            .map(|(wrong, times)| format!("{wrong} (refused {times} times)"))
            .collect(),
        faults,
    }
}

/// The error of a run that did not begin. `record` is the file of its recording.
pub fn failed(error: SimError, record: &Path) -> Error {
    match error {
        SimError::Policy(name, why) => Error::policy(&name, why, "fix that, or its options"),
        SimError::Config(why) => Error::user(why, "change the arguments"),
        SimError::Recording(kind, why) => Error::file(
            format!("writing {}", record.display()),
            &std::io::Error::new(kind, why),
        ),
    }
}

/// A policy, or a scheduler that is written for agents, as the agent of an enclave.
fn agent(party: &Party) -> Result<AgentSpec> {
    let Some(native) = baton_agents::find(&party.policy) else {
        let policy = baton_build::native(&party.policy)?;
        return Ok(AgentSpec::of_policy(policy, &party.options));
    };
    if !party.options.is_empty() {
        return Err(Error::user(
            format!("{} has no options", native.name),
            "leave them out",
        ));
    }
    native_agent(native)
}

/// Watches for calls that do not return, until the result is dropped.
pub fn watched(config: &Config, policy: &str) -> mpsc::Sender<()> {
    let (running, over) = mpsc::channel::<()>();
    let (under_way, policy) = (config.under_way.clone(), policy.to_owned());
    std::thread::spawn(move || watch(&under_way, &policy, &over));
    running
}

/// Ends this process when a call of a policy does not return, as nothing else can end the call.
/// Returns when the sender of `over` is dropped.
fn watch(under_way: &UnderWay, policy: &str, over: &mpsc::Receiver<()>) {
    let mut seen = None;
    while over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        let now = under_way.look();
        if let Some((_, method)) = now.filter(|_| now == seen) {
            let method = match method {
                0 => "a call of its agent",
                method => baton_abi::BATON_METHOD_NAMES
                    .get(method as usize)
                    .unwrap_or(&"?"),
            };
            eprintln!(
                "FAULT of policy {policy}: does not return from {method}\n  at fault  the \
                 policy {policy}\n  message   a call has \
                 lasted for {} s of this machine's time\n  to do     make sure that its loops \
                 end; one that waits for another CPU waits \
                 forever here, as calls come one at a time",
                PATIENCE.as_secs()
            );
            std::process::exit(super::POLICY_ERROR.into());
        }
        seen = now;
    }
}

/// How long a call may last, on this machine's clock.
const PATIENCE: Duration = Duration::from_secs(10);

/// The outputs of a run: any of a trace, a timeline, and a detail.
struct Sinks {
    perfetto: Option<Perfetto<BufWriter<File>>>,
    timeline: Option<Collector>,
    detail: Option<detail::Collector>,
}

impl Sinks {
    fn each(&mut self) -> impl Iterator<Item = &mut dyn Sink> {
        let perfetto = self.perfetto.as_mut().map(|sink| sink as &mut dyn Sink);
        let timeline = self.timeline.as_mut().map(|sink| sink as &mut dyn Sink);
        let detail = self.detail.as_mut().map(|sink| sink as &mut dyn Sink);
        [perfetto, timeline, detail].into_iter().flatten()
    }
}

impl Sink for Sinks {
    fn task(&mut self, task: TaskRef, group: &str, name: &str) {
        self.each().for_each(|sink| sink.task(task, group, name));
    }

    fn woken_by(&mut self, waker: Option<TaskRef>) {
        self.each().for_each(|sink| sink.woken_by(waker));
    }

    fn event(&mut self, now: u64, event: &Event) {
        self.each().for_each(|sink| sink.event(now, event));
    }
}

/// Adds `KEY=VALUE` to options, in place of the previous value of KEY.
fn join(options: &str, key: &str, value: &str) -> String {
    let others = options
        .split(',')
        .filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(key));
    others
        .map(str::to_owned)
        .chain([format!("{key}={value}")])
        .collect::<Vec<_>>()
        .join(",")
}

/// Carries out all jobs, as many at once as this machine has CPUs.
pub fn all(jobs: &[Job], with_timeline: bool) -> Result<Vec<Done>> {
    let bar = if jobs.len() > 1 {
        ProgressBar::new(jobs.len() as u64)
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} to go")
            .expect("the template is right"),
    );
    let results = side_by_side(
        jobs,
        |job| job.run(with_timeline, None, None),
        || bar.inc(1),
    );
    bar.finish_and_clear();
    results.into_iter().collect()
}

/// Reads a file that a workload names.
fn read_file(path: &str) -> std::result::Result<Vec<u8>, String> {
    fs::read(path).map_err(|why| format!("{path}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_place_of_another() {
        let check =
            |options: &str, expected: &str| assert_eq!(join(options, "slice", "5ms"), expected);
        check("", "slice=5ms");
        check("slice=1ms", "slice=5ms");
        check("a=1,slice=1ms,b=2", "a=1,b=2,slice=5ms");
    }
}
