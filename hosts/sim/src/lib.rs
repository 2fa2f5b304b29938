// SPDX-License-Identifier: GPL-2.0-only
//! The simulator: a deterministic machine on which policies run as they are.
//!
//! The simulation consists of discrete events, on one thread. A seed gives the same run, to the
//! bit, on every machine ([`stats::LogHash`]). The rules are those of the kernel host
//! (`baton_core`). Everything below them is simulated: CPUs, run queues, time, and tasks with
//! programs.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod agent;
pub mod cost;
pub mod demand;
pub mod detail;
mod fault;
mod host;
pub mod idle;
mod machine;
pub mod outcome;
pub mod parallel;
pub mod perfetto;
mod queue;
mod record;
pub mod report;
pub mod rng;
pub mod scene;
pub mod series;
pub mod stats;
pub mod threads;
pub mod timeline;
pub mod topology;
pub mod trace;
pub mod workloads;
pub mod world;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use baton_abi::BatonMethod;
use baton_core::{Core, CpuState, Slot};
use baton_enclave::Enclave;
use baton_native::{contained, Instance, Policy};

pub use baton_enclave::AgentSpec;
pub use outcome::Outcome;

use agent::{Side, Simulated};
use cost::Costs;
use host::{is_in_policy, Installed, SimHost};
use machine::Machine;
use record::Tape;
use scene::Scene;
use topology::Topology;
use trace::Sink;
use world::World;

/// A policy of a run.
#[derive(Clone)]
pub struct PolicySpec {
    /// The policy.
    pub policy: Policy,
    /// Its options, as for `baton load`.
    pub options: String,
}

/// Activity besides the tasks that takes CPU time, at random times and for random lengths. The
/// fields are means; 0 is never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noise {
    /// Time from one task of a higher class to the next on a CPU, ns.
    pub higher_every: u64,
    /// How long such a task has the CPU, ns.
    pub higher_for: u64,
    /// Time from one interrupt to the next on a CPU, ns.
    pub interrupt_every: u64,
    /// How long an interrupt takes, ns.
    pub interrupt_for: u64,
}

/// The configuration of a run: everything except the workload.
#[derive(Clone)]
pub struct Config {
    /// The CPUs.
    pub topology: Topology,
    /// The policies, in the order in which they are asked. The last one has the tasks that are
    /// assigned to none.
    pub policies: Vec<PolicySpec>,
    /// An agent, which has the tasks that are assigned to none in the place of the last policy.
    pub agent: Option<AgentSpec>,
    /// The CPU on which the agent polls, and which runs nothing else.
    pub agent_cpu: u32,
    /// Further versions of policies, for [`world::Happening::Upgrade`].
    pub versions: Vec<Policy>,
    /// Groups whose tasks are assigned to a policy, with the place of that policy.
    pub assign: Vec<(String, usize)>,
    /// Determines all random numbers.
    pub seed: u64,
    /// The most by which a computing time differs from that of the program, in either direction, in
    /// parts per million; drawn anew each time. The initial tasks start up to that part of a tick
    /// later. 0 is no jitter.
    pub jitter: u32,
    /// Duration of the run, ns.
    pub duration: u64,
    /// The stall limit, ns: a queued task that waits longer is a stall.
    pub stall: u64,
    /// The costs of the kernel's own work.
    pub costs: Costs,
    /// The idle states of CPUs, from [`idle::TABLES`].
    pub idle_states: &'static [idle::IdleState],
    /// Other activity that takes CPU time.
    pub noise: Noise,
    /// All CPUs share one stream of instructions, as in QEMU with `-icount`: `machine/stream.rs`.
    pub one_stream: bool,
    /// Number of task slots.
    pub max_tasks: u32,
    /// Shows the call that is under way to another thread.
    pub under_way: Arc<UnderWay>,
}

/// The call of a policy that is under way. Another thread can watch it for a call that does not
/// return, which nothing here can end.
#[derive(Debug, Default)]
pub struct UnderWay(AtomicU64);

impl UnderWay {
    pub(crate) fn begin(&self, count: u64, method: BatonMethod) {
        self.0.store(count << 8 | method as u64, Relaxed);
    }

    pub(crate) fn end(&self) {
        self.0.store(0, Relaxed);
    }

    /// The number of the call, and that of its method, which is 0 in a turn of an agent. `None`
    /// between calls.
    pub fn look(&self) -> Option<(u64, u32)> {
        Some(self.0.load(Relaxed))
            .filter(|&word| word != 0)
            .map(|word| (word >> 8, word as u32 & 0xff))
    }
}

impl Config {
    /// A run of one second on a machine of this topology, without policies.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            policies: Vec::new(),
            agent: None,
            agent_cpu: 0,
            versions: Vec::new(),
            assign: Vec::new(),
            seed: 1,
            jitter: 0,
            duration: 1_000_000_000,
            stall: 10_000_000_000,
            costs: Costs::default(),
            idle_states: &[],
            noise: Noise::default(),
            one_stream: false,
            max_tasks: 32_768,
            under_way: Arc::default(),
        }
    }

    /// The place of the policy that a group's tasks are assigned to.
    fn assigned(&self, group: &str) -> Option<usize> {
        self.assign
            .iter()
            .find(|(name, _)| name == group)
            .map(|(_, policy)| *policy)
    }
}

/// The reason why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// A policy could not be made, saved, upgraded or ended: its name, and the reason.
    Policy(String, String),
    /// The configuration is wrong.
    Config(String),
    /// The recording could not be written.
    Recording(std::io::ErrorKind, String),
}

/// Runs a workload. `sink` receives all events.
pub fn run(
    config: &Config,
    world: World,
    sink: Option<&mut dyn Sink>,
) -> Result<Outcome, SimError> {
    run_with(config, Begin::Anew(world), sink, None)
}

/// Continues from a moment of a recording. `instance` is a policy that has the tasks of the scene,
/// by their slots and tokens. The configuration is that of [`Scene::config`], with this policy
/// added.
pub fn go_on(
    config: &Config,
    scene: Scene,
    instance: Instance,
    sink: Option<&mut dyn Sink>,
) -> Result<Outcome, SimError> {
    if config.policies.len() != 1 {
        return Err(SimError::Config("a recording is of one policy".into()));
    }
    run_with(config, Begin::There(scene, instance), sink, None)
}

/// How a run begins.
enum Begin {
    Anew(World),
    There(Scene, Instance),
}

/// Runs a workload with one policy, and writes a recording of the policy (`baton_trace`) for
/// replay. `checkpoint` is the time between checkpoints, ns.
pub fn record(
    config: &Config,
    world: World,
    sink: Option<&mut dyn Sink>,
    out: Box<dyn Write>,
    checkpoint: Option<u64>,
) -> Result<Outcome, SimError> {
    let [spec] = &config.policies[..] else {
        return Err(SimError::Config("a recording is of one policy".into()));
    };
    if !config.versions.is_empty() {
        return Err(SimError::Config(
            "a recording is of one version of a policy".into(),
        ));
    }
    if checkpoint.is_some() && spec.policy.ops().reregister_save.is_none() {
        return Err(SimError::Config(format!(
            "{} saves no state, so there can be no checkpoints",
            spec.policy.name()
        )));
    }
    let tape = Tape::new(config, spec, checkpoint.is_some(), out).map_err(|e| unwritten(&e))?;
    run_with(config, Begin::Anew(world), sink, Some((tape, checkpoint)))
}

fn unwritten(error: &io::Error) -> SimError {
    SimError::Recording(error.kind(), error.to_string())
}

fn unsaved(core: &Core<'_, SimHost>, why: &str) -> SimError {
    let names = core.host().names.borrow();
    let name = names
        .last()
        .map_or_else(String::new, |(_, name)| name.clone());
    SimError::Policy(name, format!("its state could not be saved: {why}"))
}

fn run_with(
    config: &Config,
    begin: Begin,
    sink: Option<&mut dyn Sink>,
    tape: Option<(Tape, Option<u64>)>,
) -> Result<Outcome, SimError> {
    let policies = config.policies.len() + usize::from(config.agent.is_some());
    if !(1..=baton_abi::BATON_MAX_POLICIES).contains(&policies) {
        return Err(SimError::Config(format!(
            "1 to {} policies can run",
            baton_abi::BATON_MAX_POLICIES
        )));
    }
    if let Some((group, _)) = config.assign.iter().find(|(_, policy)| *policy >= policies) {
        return Err(SimError::Config(format!(
            "the group {group} is assigned to a policy that there is not"
        )));
    }
    let cpus = config.topology.cpus();
    if config.agent.is_some() {
        if cpus.len() < 2 || config.agent_cpu as usize >= cpus.len() {
            return Err(SimError::Config(
                "an agent polls on a CPU of the machine, and its tasks need another one".into(),
            ));
        }
        baton_enclave::install(&Simulated);
    }
    let slots: Vec<Slot> = (0..config.max_tasks).map(|_| Slot::default()).collect();
    let states: Vec<CpuState> = cpus.iter().map(|_| CpuState::default()).collect();
    let host = SimHost::new(
        cpus.len(),
        slots.len(),
        config.seed,
        config.under_way.clone(),
        tape,
    );
    let core: Core<'_, SimHost> = Core::new(host, &slots, &states);
    // SAFETY: On-stack. It is dropped before the core.
    let _installed = unsafe { Installed::new(&core) };
    for cpu in 0..cpus.len() {
        core.note_online(cpu as i32, true);
    }
    let played = match begin {
        Begin::Anew(world) => guarded(&core, "made", || start(config, &core)).and_then(|started| {
            let agent = started?;
            if core.host().checkpoint_every.is_some() {
                guarded(&core, "saved", || {
                    core.host().checkpoint().map_err(|why| unsaved(&core, &why))
                })??;
            }
            play(
                &core,
                Machine::new(
                    &core,
                    config,
                    world,
                    agent,
                    sink.map(|sink| sink as &mut dyn Sink),
                ),
            )
        }),
        Begin::There(scene, instance) => {
            let Scene {
                clock,
                tasks,
                online,
                timers,
                world,
                ..
            } = scene;
            instance.policy().install(Some(core.host().table()));
            core.host().clock.set(clock);
            let policy = config.policies[0].policy;
            register(&core, &policy.name(), policy.events(), instance);
            let mut machine = Machine::new(
                &core,
                config,
                world,
                None,
                sink.map(|sink| sink as &mut dyn Sink),
            );
            machine
                .resume(tasks, &online, &timers)
                .map_err(SimError::Config)
                .and_then(|()| play(&core, machine))
        }
    };
    let recorded = core.host().tape.take().map_or(Ok(()), Tape::finish);
    let ended = end(&core);
    if core.host().has_crashed.get() {
        // State that was abandoned in the middle of a call is not used again, not even to drop it.
        std::mem::forget(core);
    }
    let outcome = played?;
    recorded.map_err(|e| unwritten(&e))?;
    ended.map(|()| outcome)
}

/// Runs `f`, which executes policies outside of their calls, and returns a crash as an error.
fn guarded<R>(core: &Core<'_, SimHost>, what: &str, f: impl FnOnce() -> R) -> Result<R, SimError> {
    contained(is_in_policy, f).map_err(|crash| {
        core.host().has_crashed.set(true);
        let name = core
            .host()
            .making
            .take()
            .map_or_else(String::new, |policy| policy.name());
        SimError::Policy(name, format!("it could not be {what}: {crash}"))
    })
}

/// Runs the machine from the first event to the last.
fn play<'m>(core: &'m Core<'m, SimHost>, mut machine: Machine<'m>) -> Result<Outcome, SimError> {
    if let Err(crash) = contained(is_in_policy, || {
        machine.run();
        machine.judge_all();
    }) {
        core.host().has_crashed.set(true);
        machine.abandon_agent();
        if let Some(policy) = core.host().making.take() {
            // A run with checkpoints has no upgrades, so the policy was saving its state.
            if core.host().checkpoint_every.is_some() {
                return Err(unsaved(core, &crash.to_string()));
            }
            let why = format!("it could not be put in the place of another version: {crash}");
            return Err(SimError::Policy(policy.name(), why));
        }
        host::crashed(crash);
    }
    machine.end();
    if let Some(why) = machine.unsaved.take() {
        return Err(unsaved(core, &why));
    }
    let mut faults = core.host().reports.take();
    for fault in &mut faults {
        if let Some(name) = machine.name_of(fault.pid) {
            fault::name_task(fault, name);
        }
    }
    Ok(Outcome {
        stats: machine.stats,
        calls: core.host().calls.get(),
        refusals: core
            .policies()
            .iter()
            .map(|entry| entry.refusals.load(Relaxed))
            .sum(),
        wrong_moves: core.host().wrong_moves.take(),
        faults,
    })
}

/// Ends the policies while their host exists.
fn end(core: &Core<'_, SimHost>) -> Result<(), SimError> {
    let host = core.host();
    if host.has_crashed.get() {
        return Ok(());
    }
    guarded(core, "given up", || {
        for instance in host.instances.take() {
            host.making.set(Some(instance.policy()));
            drop(instance);
        }
        host.making.set(None);
    })
}

/// Makes the policies and the agent, and starts them.
fn start(config: &Config, core: &Core<'_, SimHost>) -> Result<Option<Side>, SimError> {
    for (place, spec) in config.policies.iter().enumerate() {
        let host = core.host();
        spec.policy.install(Some(host.table()));
        let name = spec.policy.name();
        host.making.set(Some(spec.policy));
        let made = spec
            .policy
            .make(config.topology.cpus(), config.max_tasks, &spec.options);
        host.making.set(None);
        let made = made.map_err(|why| {
            let why = host
                .take_words()
                .map_or(why.clone(), |words| format!("{why}: {words}"));
            SimError::Policy(name.clone(), format!("it could not be made: {why}"))
        })?;
        // The last one has the tasks that are assigned to none, unless there is an agent.
        if place + 1 == config.policies.len() && config.agent.is_none() {
            host.making.set(Some(spec.policy));
            let may_be = made.may_be_default();
            host.making.set(None);
            may_be.map_err(|why| {
                SimError::Policy(name.clone(), format!("it refuses to have all tasks: {why}"))
            })?;
        }
        register(core, &spec.policy.name(), spec.policy.events(), made);
    }
    let agent = config.agent.as_ref();
    agent
        .map(|spec| start_agent(config, core, spec))
        .transpose()
}

fn start_agent(
    config: &Config,
    core: &Core<'_, SimHost>,
    spec: &AgentSpec,
) -> Result<Side, SimError> {
    let failed =
        |why: String| SimError::Policy(spec.name.clone(), format!("it could not be made: {why}"));
    let cpus = config.topology.cpus();
    let (enclave, instance, events) =
        Enclave::new(cpus, config.max_tasks, spec.entries, spec.events).map_err(failed)?;
    let polling = (spec.make)(enclave.agent(cpus), config.agent_cpu as usize).map_err(failed)?;
    register(core, &spec.name, events, instance);
    core.host().enclave.replace(Some(enclave.clone()));
    Ok(Side {
        polling,
        enclave,
        cpu: config.agent_cpu,
        busy_until: 0,
        next: u64::MAX,
        turn: 0,
    })
}

fn register(core: &Core<'_, SimHost>, name: &str, events: u32, instance: Instance) {
    let host = core.host();
    host.instances.borrow_mut().push(instance);
    let version = host.instances.borrow().len();
    let entry = core
        .register(events)
        .expect("there are no more than there are places");
    host.names.borrow_mut().push((entry.index(), name.into()));
    core.start(entry, version)
        .expect("it has just been registered");
    core.set_default(Some(entry));
}
