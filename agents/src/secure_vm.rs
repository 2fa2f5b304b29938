// SPDX-License-Identifier: GPL-2.0-only
//! `secure_vm`: the hardware threads of a core never run tasks of two groups at once, so that
//! neither can learn what the other does from what they share. A group is a control group, such as
//! that of a virtual machine. ghOSt's section 4.5 is the model.
//!
//! Each CPU has an agent. A core has one group at a time. An agent gives its CPU tasks of that
//! group by a transaction of its own. For another group, the agents of the core's CPUs all run, so
//! that none of its tasks does, and one of them commits to all CPUs together. The kernel accepts
//! that only while all of these agents run. A CPU for which the group has no task idles.
//!
//! A core changes its group when it has run nothing else for [`QUANTUM`], or has no task of its
//! group left to run. The group whose task has waited longest comes next.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use baton_abi::{
    BatonAgentCommit, BatonCommit, BatonMethod, BatonStateType, BatonToken, BATON_AGENT_KICK_AGENT,
    BATON_KICK_PREEMPT, BATON_PICK_KEEP, BATON_PICK_NONE,
};
use baton_agent::{serve, Agent, Ended, Inbox, Message, Mode, PerCpu, RunError, Session, Turn};

use crate::Native;

/// How long a core runs a group while another one waits.
const QUANTUM: Duration = Duration::from_millis(10);
/// A task's slice, ns.
const SLICE: u64 = 5_000_000;
/// How long an agent waits for those of the other CPUs of its core, before it tries again later.
const MEETING: Duration = Duration::from_millis(1);

/// `secure_vm`, as `baton agent run` finds it.
pub const SECURE_VM: Native = Native {
    name: "secure_vm",
    is_per_cpu: true,
    hint_type: BatonStateType::NONE,
    reply_type: BatonStateType::NONE,
    events: 0,
    polling: None,
    begin: |agent, mode| match mode {
        Mode::PerCpu => Ok(Box::new(SecureVm::new(agent)?)),
        Mode::Global(_) => Err(RunError::Policy(
            "secure_vm has an agent on each CPU: --per-cpu".into(),
        )),
    },
};

/// The number of a control group.
type Group = u32;

/// What is known of a task.
#[derive(Clone, Copy, Default)]
struct Task {
    pid: u32,
    /// None until its control group was looked up.
    group: Option<Group>,
    /// 0 unless it waits for a CPU.
    token: BatonToken,
    /// Its place among all tasks that wait.
    order: u64,
}

/// A core.
struct Core {
    cpus: Vec<usize>,
    /// The only group whose tasks its CPUs run.
    group: Option<Group>,
    /// When it got that group.
    since: Instant,
}

/// The scheduler, and its session.
struct SecureVm {
    agent: Agent,
    /// By CPU: its core's index.
    core_of: Vec<usize>,
    state: Mutex<State>,
    stopping: AtomicBool,
}

struct State {
    inbox: Inbox,
    /// By slot.
    tasks: Vec<Task>,
    /// The tasks of each group that wait, by their order: slots.
    waiting: HashMap<Group, BTreeMap<u64, u32>>,
    /// The order of the last task.
    order: u64,
    cores: Vec<Core>,
    /// By CPU: its task waits for whether it goes on.
    is_asked: Vec<bool>,
    has_new_cpu: bool,
    /// Tasks whose control group is to be looked up: slots and process ids.
    unknown: Option<Sender<(u32, u32)>>,
}

/// What an agent is to do next.
enum Step {
    /// Give way, and look again after this time if nothing comes before.
    GiveWay(Option<Duration>),
    /// Have the core run this group.
    Change(Group),
}

impl State {
    /// A task waits for a CPU.
    fn ready(&mut self, slot: u32, token: BatonToken) {
        self.remove(slot);
        self.order += 1;
        let task = &mut self.tasks[slot as usize];
        (task.token, task.order) = (token, self.order);
        self.insert(slot);
    }

    fn insert(&mut self, slot: u32) {
        let task = self.tasks[slot as usize];
        if let (Some(group), true) = (task.group, task.token != 0) {
            self.waiting
                .entry(group)
                .or_default()
                .insert(task.order, slot);
        }
    }

    /// A task no longer waits.
    fn remove(&mut self, slot: u32) {
        let task = &mut self.tasks[slot as usize];
        task.token = 0;
        let Some(group) = task.group else {
            return;
        };
        if let Some(waiting) = self.waiting.get_mut(&group) {
            waiting.remove(&task.order);
            if waiting.is_empty() {
                self.waiting.remove(&group);
            }
        }
    }

    fn handle(&mut self, message: &Message) {
        use BatonMethod as M;
        match M::of(u32::from(message.method)) {
            M::TaskNew => {
                self.remove(message.slot);
                self.tasks[message.slot as usize] = Task {
                    pid: message.pid,
                    ..Task::default()
                };
                if let Some(unknown) = &self.unknown {
                    // Fails only at the end of the session.
                    let _ = unknown.send((message.slot, message.pid));
                }
                self.ready(message.slot, message.token);
            }
            M::TaskWakeup | M::TaskPreempt | M::TaskYield | M::TaskRestored | M::PickRefused => {
                self.ready(message.slot, message.token);
            }
            M::TaskBlocked | M::TaskDequeued => self.remove(message.slot),
            M::TaskDeparted | M::TaskDead => {
                self.remove(message.slot);
                self.tasks[message.slot as usize] = Task::default();
            }
            M::PickNextTask if message.slot != u32::MAX => {
                self.is_asked[message.cpu as usize] = true;
            }
            M::CpuOnline => self.has_new_cpu = true,
            _ => {}
        }
    }

    /// The first task of a group that may run on a CPU, and is not one of those.
    fn first(&self, agent: &Agent, group: Group, cpu: usize, but: &[u32]) -> Option<u32> {
        let mut waiting = self.waiting.get(&group)?.values().copied();
        waiting.find(|slot| agent.may_run(*slot, cpu) && !but.contains(slot))
    }

    /// The groups with tasks that wait, in the order of their oldest.
    fn groups(&self) -> Vec<Group> {
        let oldest = |waiting: &BTreeMap<u64, u32>| waiting.keys().next().copied();
        let groups = self.waiting.iter();
        let mut groups: Vec<_> = groups.map(|(group, them)| (oldest(them), *group)).collect();
        groups.sort_unstable();
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

/// The control group of a process; empty if it has ended.
fn control_group(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("0::"));
    group.unwrap_or_default().to_owned()
}

/// Is the CPU online, whether it is the enclave's or not? CPU 0 of some machines has no file.
fn is_online(cpu: usize) -> bool {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::read_to_string(file).map_or(cpu == 0, |text| text.trim() == "1")
}

impl SecureVm {
    fn new(agent: Agent) -> Result<Self, RunError> {
        let topology = agent.topology();
        let mut ids = Vec::new();
        let mut cores: Vec<Core> = Vec::new();
        let mut core_of = Vec::new();
        for (cpu, place) in topology.iter().enumerate() {
            let known = ids.iter().position(|id| *id == place.core);
            let core = known.unwrap_or(ids.len());
            if known.is_none() {
                ids.push(place.core);
                cores.push(Core {
                    cpus: Vec::new(),
                    group: None,
                    since: Instant::now(),
                });
            }
            cores[core].cpus.push(cpu);
            core_of.push(core);
        }
        for core in &cores {
            let of_enclave = |cpu: &usize| agent.is_online(*cpu);
            let other = core
                .cpus
                .iter()
                .find(|cpu| !of_enclave(cpu) && is_online(**cpu));
            if let (Some(own), Some(other)) = (core.cpus.iter().find(|cpu| of_enclave(cpu)), other)
            {
                return Err(RunError::Policy(format!(
                    "CPU {own} shares its core with CPU {other}, which is not the enclave's; give \
                     it whole cores"
                )));
            }
        }
        let state = State {
            inbox: Inbox::new(&agent),
            tasks: vec![Task::default(); agent.nr_slots() as usize],
            waiting: HashMap::new(),
            order: 0,
            cores,
            is_asked: vec![false; topology.len()],
            has_new_cpu: false,
            unknown: None,
        };
        Ok(Self {
            agent,
            core_of,
            state: Mutex::new(state),
            stopping: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no agent panics")
    }

    /// Does the CPU run a task of the enclave, or is it about to?
    fn is_busy(&self, cpu: usize) -> bool {
        self.agent.runs_task(cpu) || self.agent.is_pending(cpu)
    }

    /// What the agent of a CPU is to do. It may commit a task of the core's group to its CPU.
    fn step(&self, state: &mut State, cpu: usize) -> Step {
        // Another agent of the core has changed its group.
        if self.agent.is_pending(cpu) || !self.agent.is_online(cpu) {
            return Step::GiveWay(None);
        }
        let core = &state.cores[self.core_of[cpu]];
        let other = state.groups().into_iter().find(|group| {
            let mut cpus = core.cpus.iter();
            let first = |cpu: &usize| state.first(&self.agent, *group, *cpu, &[]).is_some();
            core.group != Some(*group) && cpus.any(first)
        });
        let own = core
            .group
            .and_then(|group| state.first(&self.agent, group, cpu, &[]));
        let left = QUANTUM.saturating_sub(core.since.elapsed());
        if let Some(other) = other {
            let others = core.cpus.iter().filter(|sibling| **sibling != cpu);
            let runs_on = state.is_asked[cpu] || others.into_iter().any(|cpu| self.is_busy(*cpu));
            if core.group.is_none() || left.is_zero() || (own.is_none() && !runs_on) {
                return Step::Change(other);
            }
        }
        let is_asked = std::mem::take(&mut state.is_asked[cpu]);
        if let Some(slot) = own {
            let token = state.tasks[slot as usize].token;
            if self.agent.commit(cpu, token, SLICE) {
                state.remove(slot);
            }
        } else if is_asked {
            self.agent.commit(cpu, BATON_PICK_KEEP, SLICE);
        }
        Step::GiveWay(other.map(|_| left))
    }

    /// Has all CPUs of a core run tasks of a group, or none. False if that must wait for agents.
    fn change(&self, state: &mut State, core: usize, group: Group) -> bool {
        let online = state.cores[core].cpus.iter().copied();
        let cpus: Vec<usize> = online.filter(|cpu| self.agent.is_online(*cpu)).collect();
        if !cpus.iter().all(|cpu| self.agent.runs_agent(*cpu)) {
            return false;
        }
        let mut slots = Vec::new();
        let mut commits = Vec::new();
        for cpu in &cpus {
            let slot = state.first(&self.agent, group, *cpu, &slots);
            slots.extend(slot);
            commits.push(BatonAgentCommit {
                token: slot.map_or(BATON_PICK_NONE, |slot| state.tasks[slot as usize].token),
                slice: SLICE,
                cpu: *cpu as u16,
                ..Default::default()
            });
        }
        // An error means that the session has ended.
        let is_done = self.agent.commit_together(&mut commits) == Ok(true);
        let tasks = commits
            .iter()
            .filter(|commit| commit.token != BATON_PICK_NONE);
        for (slot, commit) in slots.into_iter().zip(tasks) {
            let is_gone = [BatonCommit::Stale, BatonCommit::NotFound]
                .iter()
                .any(|outcome| *outcome as u32 == commit.outcome);
            if is_done || is_gone {
                state.remove(slot);
            }
        }
        if is_done {
            let core = &mut state.cores[core];
            (core.group, core.since) = (Some(group), Instant::now());
            cpus.iter().for_each(|cpu| state.is_asked[*cpu] = false);
        }
        is_done
    }

    /// Has the agents of idle CPUs look, for which there are tasks. `own` looks by itself.
    fn alert(&self, state: &State, own: Option<usize>) {
        let mut kicks = Vec::new();
        let mut is_taken: Vec<bool> = (0..self.agent.nr_cpus())
            .map(|cpu| Some(cpu) == own || !self.agent.wants(cpu) || self.is_busy(cpu))
            .collect();
        for group in state.groups() {
            for slot in state.waiting[&group].values() {
                let fits = |cpu: &usize| {
                    let core = &state.cores[self.core_of[*cpu]];
                    let is_free = || !core.cpus.iter().any(|cpu| self.is_busy(*cpu));
                    let is_allowed = self.agent.may_run(*slot, *cpu);
                    !is_taken[*cpu] && is_allowed && (core.group == Some(group) || is_free())
                };
                let Some(cpu) = (0..is_taken.len()).find(fits) else {
                    break;
                };
                is_taken[cpu] = true;
                kicks.push(cpu as u16 | BATON_AGENT_KICK_AGENT);
            }
        }
        self.kick(&kicks);
    }

    fn kick(&self, cpus: &[u16]) {
        if !cpus.is_empty() {
            // An error means that a CPU went offline, or that the session has ended.
            let _ = self.agent.kick(cpus);
        }
    }

    /// Has the agents of a core's other CPUs come.
    fn call_together(&self, state: &State, cpu: usize) {
        let cpus = state.cores[self.core_of[cpu]].cpus.iter();
        let absent =
            cpus.filter(|cpu| self.agent.is_online(**cpu) && !self.agent.runs_agent(**cpu));
        let kicks: Vec<u16> = absent
            .map(|cpu| *cpu as u16 | BATON_AGENT_KICK_AGENT | BATON_KICK_PREEMPT)
            .collect();
        self.kick(&kicks);
    }

    /// Looks up the control groups of tasks, in a thread that is no agent: files of the kernel take
    /// locks that a task of the enclave may hold.
    fn look_up(&self, tasks: &Receiver<(u32, u32)>) {
        let mut numbers = HashMap::new();
        for (slot, pid) in tasks {
            let next = numbers.len() as Group;
            let group = *numbers.entry(control_group(pid)).or_insert(next);
            let mut state = self.lock();
            let task = &mut state.tasks[slot as usize];
            if task.pid == pid {
                task.group = Some(group);
                state.insert(slot);
                self.alert(&state, None);
            }
        }
    }
}

impl PerCpu for SecureVm {
    type Local = ();

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn is_over(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    fn begin(&self, _: usize) {}

    fn turn(&self, cpu: usize, (): &mut ()) -> Option<Turn> {
        let mut called = None;
        loop {
            let mut state = self.lock();
            let mut inbox = std::mem::take(&mut state.inbox);
            while inbox.read(&self.agent, |message, _| {
                let is_refused = message.method == BatonMethod::PickRefused as u16;
                if !is_refused || self.agent.has_token(message) {
                    state.handle(message);
                }
            }) {}
            state.inbox = inbox;
            let mut wait = match self.step(&mut state, cpu) {
                Step::GiveWay(wait) => Some(wait),
                Step::Change(group) => self
                    .change(&mut state, self.core_of[cpu], group)
                    .then_some(None),
            };
            let begun = *called.get_or_insert_with(|| {
                if wait.is_none() {
                    self.call_together(&state, cpu);
                }
                Instant::now()
            });
            if wait.is_none() && (begun.elapsed() > MEETING || self.agent.has_ended()) {
                // The CPU's task goes on, if it has one.
                state.is_asked[cpu] = false;
                wait = Some(Some(MEETING));
            }
            if let Some(wait) = wait {
                self.alert(&state, Some(cpu));
                return self.agent.is_online(cpu).then(|| Turn {
                    wait,
                    has_new_cpu: std::mem::take(&mut state.has_new_cpu),
                });
            }
            drop(state);
            spin_loop();
        }
    }

    fn lost(&self, _: usize, token: Option<BatonToken>) {
        let Some(token) = token.filter(|token| *token > BATON_PICK_KEEP) else {
            return;
        };
        let mut state = self.lock();
        state.ready((token as u32).wrapping_sub(1), token);
        self.alert(&state, None);
    }

    fn end(&self) {
        // Fails only if it has ended already.
        let _ = self.agent.end();
    }
}

impl Session for SecureVm {
    fn run(&self) -> Result<Ended, RunError> {
        let (sender, tasks) = channel();
        self.lock().unknown = Some(sender);
        let served = thread::scope(|scope| {
            scope.spawn(move || self.look_up(&tasks));
            let served = serve(self);
            self.lock().unknown = None;
            served
        });
        served.map_err(|errno| RunError::Thread(errno.into()))?;
        let is_stopping = self.stopping.load(Relaxed);
        self.stop();
        Ok(match self.agent.lost() {
            lost if lost != 0 && !is_stopping => Ended::Lost(lost),
            _ => Ended::Stopped,
        })
    }

    fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.end();
    }
}
