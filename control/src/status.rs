// SPDX-License-Identifier: GPL-2.0-only
//! The state of the core and its policies. It is read once from the control device into plain data,
//! which `--json` prints as it is and `report` formats.

use baton_abi::*;
use baton_core::TaskState;
use serde::Serialize;

use crate::cgroups;
use crate::cpulist::CpuList;
use crate::device::{text, Device, BLOCKS_PER_MIB};
use crate::error::Result;
use crate::lines;
use crate::modules::AGENT_MODULE;

#[derive(Serialize, Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// `None` if the core is not loaded; all lists are empty then.
    pub core: Option<Core>,
    pub policies: Vec<Policy>,
    pub partitions: Vec<Partition>,
    pub cgroups: Vec<Cgroup>,
    pub cpus: Vec<Cpu>,
    /// The last fault of each policy that had one, newest first.
    pub faults: Vec<Fault>,
}

#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Core {
    pub abi: u32,
    /// Is the shim attached to sched_ext?
    pub attached: bool,
    /// Does Baton schedule all normal tasks of the machine, not only those of class SCHED_EXT?
    pub all: bool,
    pub nr_cpus: u32,
    /// Number of task slots.
    pub max_tasks: u32,
    /// Number of slots in use.
    pub tasks: u32,
    /// Number of tasks for which there was no slot.
    pub no_slot: u64,
    /// The policy of tasks that are assigned to none.
    pub default_policy: Option<String>,
    pub stall_ms: u32,
}

/// A cgroup whose tasks belong to a policy.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Cgroup {
    /// Path below /sys/fs/cgroup.
    pub cgroup: String,
    pub policy: String,
}

/// CPUs that only some policies use.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Partition {
    pub name: String,
    pub cpus: CpuList,
    pub policies: Vec<String>,
}

#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Policy {
    pub name: String,
    pub state: &'static str,
    pub id: u32,
    pub version: u32,
    /// Tasks that belong to the policy, and those of them that run, wait in its queues and sleep.
    /// Tasks change while they are counted, so the sum may differ.
    pub tasks: u32,
    pub running: u32,
    pub queued: u32,
    pub asleep: u32,
    pub memory_bytes: u64,
    pub refusals: u64,
    pub faults: u64,
    pub options: String,
    /// The guaranteed share of each CPU's time, percent.
    pub share: u32,
    /// Is the policy being recorded into a file?
    pub recording: bool,
    /// Size of the flight recorder for each CPU, MiB; 0 without one.
    pub flight_mib: u32,
    pub partition: Option<String>,
    /// Is the previous version kept for a rollback?
    pub can_roll_back: bool,
    /// The last changes of version, oldest first.
    pub history: Vec<Change>,
    /// Of a policy in C: the changes of threads' states that were refused, by place.
    pub refused_changes: Vec<RefusedChange>,
}

/// A place in a policy in C at which changes of threads' states were refused.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct RefusedChange {
    pub handler: String,
    /// Of the policy's source.
    pub line: Option<u32>,
    pub times: u64,
    /// States of the first thread, and its id.
    pub from: String,
    pub to: String,
    pub pid: u32,
    pub why: String,
}

impl RefusedChange {
    fn new(change: &BatonRefusedChange) -> Self {
        Self {
            handler: text(&change.handler),
            line: (change.line != 0).then_some(change.line),
            times: change.times,
            from: text(&change.from),
            to: text(&change.to),
            pid: change.pid,
            why: text(&change.why),
        }
    }
}

/// Tasks of a policy by state, counted.
fn in_state(tasks: &[BatonTaskInfo], policy: u32, state: TaskState) -> u32 {
    let is_it = |task: &&BatonTaskInfo| task.policy == policy && task.state == state as u32;
    tasks.iter().filter(is_it).count() as u32
}

/// One change of a policy's version.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Change {
    /// Time since the boot, ns.
    pub at_ns: u64,
    pub kind: &'static str,
    pub from_version: u32,
    pub to_version: u32,
    /// Did the new version begin with a state of its own?
    pub anew: bool,
    /// How long CPUs were held: from the first CPU that is held for the change to the last that
    /// continues; 0 if none was held.
    pub held_ns: u64,
    /// The parts of `held_ns` that were spent in the policy's code and in the core's.
    pub policy_ns: u64,
    pub core_ns: u64,
    /// Memory that the policy allocated for the change.
    pub memory_bytes: u64,
}

pub fn change(change: &BatonChange) -> Change {
    Change {
        at_ns: change.now,
        kind: match change.kind {
            k if k == BatonChangeKind::Rollback as u32 => "rollback",
            k if k == BatonChangeKind::FaultRollback as u32 => "rollback after a fault",
            _ => "upgrade",
        },
        from_version: change.from_version,
        to_version: change.to_version,
        anew: change.anew != 0,
        held_ns: change.held,
        policy_ns: change.policy,
        core_ns: change.core,
        memory_bytes: change.memory,
    }
}

#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Cpu {
    pub cpu: u32,
    pub online: bool,
    pub dispatches: u64,
    pub picks: u64,
    pub enqueues: u64,
    /// Tasks placed directly on an idle CPU.
    pub directs: u64,
    pub refusals: u64,
    pub fallbacks: u64,
    pub timers: u64,
}

#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Fault {
    pub policy: String,
    /// Is the policy still stopped because of this fault?
    pub stopped: bool,
    /// Tasks that belonged to the policy when this was read.
    pub tasks: u32,
    pub kind: &'static str,
    pub method: &'static str,
    pub cpu: u32,
    pub task: Option<Task>,
    /// `file:line` in the policy's source, if known.
    pub place: Option<String>,
    pub message: String,
    /// Time of the scheduler's clock.
    pub at_ns: u64,
    /// Number of the fault since the core was loaded.
    pub serial: u64,
    /// The last calls on that CPU, oldest first.
    pub calls: Vec<Call>,
    /// Has a flight recorder kept the calls that led to the fault?
    pub recorded: bool,
    /// Is the policy that of an enclave, so that it ran in the process of an agent?
    pub in_agent: bool,
}

#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Task {
    pub pid: u32,
    pub comm: String,
}

#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Call {
    pub at_ns: u64,
    pub method: &'static str,
    pub pid: Option<u32>,
}

impl Status {
    pub fn read(device: &Device) -> Result<Self> {
        let core = device.core()?;
        let infos = device.policies()?;
        let tasks = device.tasks()?;
        let refused = device.refused_changes()?;
        let default = infos
            .iter()
            .find(|p| p.id == core.default_policy && p.id != 0);
        let mut faults = Vec::new();
        for info in &infos {
            faults.extend(
                device
                    .fault(info.index)?
                    .map(|fault| Fault::new(&fault, Some(info))),
            );
        }
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.serial));
        Ok(Self {
            core: Some(Core {
                abi: core.abi,
                attached: core.attached != 0,
                all: core.all != 0,
                nr_cpus: core.nr_cpus,
                max_tasks: core.max_tasks,
                tasks: core.tasks,
                no_slot: core.no_slot,
                default_policy: default.map(|p| text(&p.name)),
                stall_ms: core.stall_ms,
            }),
            policies: infos
                .iter()
                .map(|info| Policy::new(info, &tasks, &refused))
                .collect(),
            partitions: device.partitions()?,
            cgroups: cgroups::rules(device)?,
            cpus: (0..core.nr_cpus)
                .map(|cpu| Ok(Cpu::new(&device.cpu(cpu)?)))
                .collect::<Result<_>>()?,
            faults,
        })
    }
}

impl Policy {
    fn new(
        info: &BatonPolicyInfo,
        tasks: &[BatonTaskInfo],
        refused: &[BatonRefusedChange],
    ) -> Self {
        let in_state = |state| in_state(tasks, info.id, state);
        let refused = refused.iter().filter(|change| change.policy == info.index);
        Self {
            name: text(&info.name),
            state: state_name(info.state),
            id: info.id,
            version: info.version,
            tasks: info.tasks,
            running: in_state(TaskState::Running),
            queued: info.queued,
            asleep: in_state(TaskState::Sleeping),
            memory_bytes: info.memory,
            refusals: info.refusals,
            faults: info.faults,
            options: text(&info.options),
            share: info.share,
            recording: info.recording != 0,
            flight_mib: info.flight / BLOCKS_PER_MIB,
            partition: (info.partition[0] != 0).then(|| text(&info.partition)),
            can_roll_back: info.modules[2][0] != 0,
            history: info
                .history
                .iter()
                .filter(|c| c.kind != 0)
                .map(change)
                .collect(),
            refused_changes: refused.map(RefusedChange::new).collect(),
        }
    }
}

impl Cpu {
    fn new(info: &BatonCpuInfo) -> Self {
        Self {
            cpu: info.cpu,
            online: info.online != 0,
            dispatches: info.dispatches,
            picks: info.picks,
            enqueues: info.enqueues,
            directs: info.directs,
            refusals: info.refusals,
            fallbacks: info.fallbacks,
            timers: info.timers,
        }
    }
}

impl Fault {
    /// `policy` is the policy that failed, if it is still loaded.
    pub fn new(fault: &BatonFault, policy: Option<&BatonPolicyInfo>) -> Self {
        let file = text(&fault.file);
        let events = fault.events.iter().take(fault.nr_events as usize);
        Self {
            policy: text(&fault.policy),
            stopped: policy.is_some_and(|p| p.state == BatonPolicyState::Faulted as u32),
            tasks: policy.map_or(0, |p| p.tasks),
            kind: BATON_FAULT_NAMES
                .get(fault.kind as usize)
                .unwrap_or(&"unknown fault"),
            method: method_name(fault.method),
            cpu: fault.cpu,
            task: (fault.pid != 0).then(|| Task {
                pid: fault.pid,
                comm: text(&fault.comm),
            }),
            place: match fault.ip {
                0 => (!file.is_empty()).then(|| format!("{file}:{}", fault.line)),
                ip => policy.and_then(|policy| lines::place(&text(&policy.modules[0]), ip)),
            },
            message: text(&fault.message),
            at_ns: fault.now,
            serial: fault.serial,
            calls: events
                .map(|e| Call {
                    at_ns: e.now,
                    method: method_name(e.method),
                    pid: (e.pid != 0).then_some(e.pid),
                })
                .collect(),
            recorded: policy.is_some_and(|p| p.recorded != 0),
            in_agent: policy.is_some_and(|p| text(&p.modules[0]) == AGENT_MODULE),
        }
    }
}

fn method_name(number: u32) -> &'static str {
    BATON_METHOD_NAMES.get(number as usize).unwrap_or(&"?")
}

pub fn state_name(number: u32) -> &'static str {
    ["absent", "loaded", "running", "faulted"]
        .get(number as usize)
        .unwrap_or(&"?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!(
            method_name(BatonMethod::PickNextTask as u32),
            "pick_next_task"
        );
        assert_eq!(method_name(BatonMethod::ExitIdle as u32), "exit_idle");
        assert_eq!(method_name(99), "?");
        assert_eq!(state_name(BatonPolicyState::Faulted as u32), "faulted");
        assert_eq!(state_name(BatonPolicyState::Registered as u32), "loaded");
    }
}
