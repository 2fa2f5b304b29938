// SPDX-License-Identifier: GPL-2.0-only
//! Converts JSON to plain structures: the file, its global object, tasks and phases.

use super::event::{self, Event};
use super::json::Json;
use crate::workloads::MAX_TASKS;

/// A file.
#[derive(Debug, PartialEq)]
pub(super) struct File {
    pub(super) global: Global,
    pub(super) tasks: Vec<Task>,
}

/// Settings for all tasks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Global {
    /// When all tasks end, ns; `None`: never.
    pub(super) duration: Option<u64>,
    /// The duration of one of the loops that make up a `run`, ns; 1 if rt-app would calibrate the
    /// CPU.
    pub(super) loop_ns: u64,
    /// Size of the buffer that `mem` and `iorun` use, bytes.
    pub(super) buffer: u64,
}

/// A kind of thread.
#[derive(Debug, PartialEq)]
pub(super) struct Task {
    pub(super) name: String,
    /// Number of instances at the start; 0 for a task that is only forked.
    pub(super) instances: u64,
    /// Delay before it starts, ns.
    pub(super) delay: u64,
    /// Repetitions of all phases; `None`: without end.
    pub(super) loops: Option<u64>,
    pub(super) nice: i32,
    pub(super) cpus: Option<Vec<usize>>,
    pub(super) taskgroup: Option<String>,
    pub(super) phases: Vec<Phase>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Phase {
    pub(super) name: String,
    /// `None`: without end.
    pub(super) loops: Option<u64>,
    pub(super) nice: Option<i32>,
    pub(super) cpus: Option<Vec<usize>>,
    pub(super) events: Vec<Event>,
}

/// A position in the file, for errors.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) task: &'a str,
    pub(super) phase: Option<&'a str>,
}

impl Place<'_> {
    pub(super) fn wrong(&self, key: &str, why: impl std::fmt::Display) -> String {
        match self.phase {
            Some(phase) => format!("task '{}', phase '{phase}', key '{key}': {why}", self.task),
            None => format!("task '{}', key '{key}': {why}", self.task),
        }
    }
}

pub(super) fn int(value: &Json, low: i64, high: i64) -> Result<i64, String> {
    match value {
        Json::Int(value) if (low..=high).contains(value) => Ok(*value),
        Json::Int(value) => Err(format!("{value} is not from {low} to {high}")),
        other => Err(format!("an integer is needed, not {}", other.kind())),
    }
}

pub(super) fn text(value: &Json) -> Result<&str, String> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err(format!("a string is needed, not {}", other.kind())),
    }
}

pub(super) fn object(value: &Json) -> Result<&[(String, Json)], String> {
    match value {
        Json::Object(members) => Ok(members),
        other => Err(format!("an object is needed, not {}", other.kind())),
    }
}

fn boolean(value: &Json) -> Result<bool, String> {
    match value {
        Json::Bool(value) => Ok(*value),
        other => Err(format!("true or false is needed, not {}", other.kind())),
    }
}

/// Upper limit in microseconds, as rt-app keeps them in an int; a larger value is a typing error.
pub(super) const MAX_INT: i64 = i32::MAX as i64;

pub(super) fn micros(value: &Json) -> Result<u64, String> {
    Ok(int(value, 0, MAX_INT)? as u64 * 1000)
}

/// Parses a number of repetitions; -1 means without end.
fn loops(value: &Json) -> Result<Option<u64>, String> {
    Ok(u64::try_from(int(value, -1, MAX_INT)?).ok())
}

fn cpus(value: &Json, nr_cpus: usize) -> Result<Vec<usize>, String> {
    let Json::List(list) = value else {
        return Err(format!("an array is needed, not {}", value.kind()));
    };
    if list.is_empty() {
        return Err("there must be at least one CPU".into());
    }
    let mut cpus = Vec::new();
    for cpu in list {
        cpus.push(match int(cpu, 0, MAX_INT)? as usize {
            cpu if cpu < nr_cpus => cpu,
            cpu => return Err(format!("there is no CPU {cpu}: the machine has {nr_cpus}")),
        });
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

fn policy(value: &Json) -> Result<(), String> {
    match text(value)? {
        // Without the kernel's own policy these do not differ.
        "SCHED_OTHER" | "SCHED_BATCH" => Ok(()),
        "SCHED_IDLE" => Err(
            "SCHED_IDLE weighs less than any nice value, and the simulator's tasks have nice \
                values"
                .into(),
        ),
        name @ ("SCHED_RR" | "SCHED_FIFO" | "SCHED_DEADLINE") => Err(format!(
            "{name} is a class above all policies, which place normal tasks; higher classes take \
             CPUs as happenings"
        )),
        name => Err(format!("'{name}' is no scheduling policy")),
    }
}

pub(super) fn file(json: &Json, nr_cpus: usize) -> Result<File, String> {
    let mut global = Global {
        duration: None,
        loop_ns: 1,
        buffer: 4 << 20,
    };
    let mut tasks = None;
    for (key, value) in object(json).map_err(|why| format!("the file: {why}"))? {
        let wrong = |why| format!("object '{key}': {why}");
        match key.as_str() {
            "global" => global_object(object(value).map_err(wrong)?, &mut global)?,
            "tasks" if tasks.is_some() => return Err(wrong("it is there twice".into())),
            "tasks" => tasks = Some(object(value).map_err(wrong)?),
            "resources" => resources(value).map_err(wrong)?,
            _ => return Err(wrong("rt-app has global, tasks and resources only".into())),
        }
    }
    let mut file = File {
        global,
        tasks: Vec::new(),
    };
    let tasks = tasks
        .filter(|tasks| !tasks.is_empty())
        .ok_or("there are no tasks")?;
    for (name, value) in tasks {
        if file.tasks.iter().any(|other| other.name == *name) {
            return Err(format!("task '{name}' is there twice"));
        }
        file.tasks.push(task(name, value, nr_cpus, &file.global)?);
    }
    match file.tasks.iter().map(|task| task.instances).sum::<u64>() {
        0 => Err("no task has an instance".into()),
        all if all > MAX_TASKS as u64 => Err(format!(
            "{all} tasks; a workload begins with at most {MAX_TASKS}"
        )),
        _ => Ok(file),
    }
}

/// Checks the resources. They are created when they are first named, in rt-app as here; old files
/// list them.
fn resources(value: &Json) -> Result<(), String> {
    for (name, resource) in object(value)? {
        object(resource).map_err(|why| format!("'{name}': {why}"))?;
    }
    Ok(())
}

fn global_object(members: &[(String, Json)], global: &mut Global) -> Result<(), String> {
    for (key, value) in members {
        global_key(key, value, global).map_err(|why| format!("global, key '{key}': {why}"))?;
    }
    Ok(())
}

fn global_key(key: &str, value: &Json, global: &mut Global) -> Result<(), String> {
    match key {
        "duration" => {
            global.duration = u64::try_from(int(value, -1, MAX_INT)?)
                .ok()
                .map(|s| s * 1_000_000_000)
        }
        "calibration" => match value {
            Json::Int(_) => global.loop_ns = int(value, 1, MAX_INT)? as u64,
            other => {
                let cpu = text(other)?
                    .strip_prefix("CPU")
                    .and_then(|cpu| cpu.parse::<u32>().ok());
                cpu.ok_or("it is a CPU, as \"CPU0\", or the nanoseconds of a loop")?;
            }
        },
        "default_policy" => policy(value)?,
        "pi_enabled" => {
            if boolean(value)? {
                return Err("the simulator's mutexes have no priority inheritance".into());
            }
        }
        "io_device" => {
            if text(value)? != "/dev/null" {
                return Err("no device is simulated but /dev/null".into());
            }
        }
        "mem_buffer_size" => global.buffer = int(value, 1, MAX_INT)? as u64,
        // Logging and locked memory do not change what tasks do. Old files set options for a way of
        // reserving CPUs that rt-app has removed.
        "frag" => {
            int(value, 0, MAX_INT)?;
        }
        "lock_pages" | "gnuplot" | "cumulative_slack" => {
            boolean(value)?;
        }
        "logdir" | "log_basename" => {
            text(value)?;
        }
        "log_size" => match value {
            Json::Int(_) => {
                int(value, 0, MAX_INT)?;
            }
            other => {
                text(other)?;
            }
        },
        "ftrace" => match value {
            Json::Bool(_) => {}
            other => {
                text(other)?;
            }
        },
        _ => return Err("rt-app has no such key".into()),
    }
    Ok(())
}

fn task(name: &str, value: &Json, nr_cpus: usize, global: &Global) -> Result<Task, String> {
    let place = Place {
        task: name,
        phase: None,
    };
    let members = object(value).map_err(|why| format!("task '{name}': {why}"))?;
    let mut task = Task {
        name: name.into(),
        instances: 1,
        delay: 0,
        loops: None,
        nice: 0,
        cpus: None,
        taskgroup: None,
        phases: Vec::new(),
    };
    let phases = members
        .iter()
        .find(|(key, _)| key == "phases")
        .map(|(_, value)| value);
    let mut looped = None;
    let mut events = Vec::new();
    for (at, (key, value)) in members.iter().enumerate() {
        let wrong = |why: String| place.wrong(key, why);
        let event = event::is_one(key);
        if !event && members[..at].iter().any(|(other, _)| other == key) {
            return Err(wrong("it is there twice".into()));
        }
        match key.as_str() {
            "phases" => {}
            "instance" => task.instances = int(value, 0, MAX_INT).map_err(wrong)? as u64,
            "delay" => task.delay = micros(value).map_err(wrong)?,
            "loop" => looped = Some(loops(value).map_err(wrong)?),
            "cpus" => task.cpus = Some(cpus(value, nr_cpus).map_err(wrong)?),
            "policy" => policy(value).map_err(wrong)?,
            "dl-runtime" => slice(value).map_err(wrong)?,
            "priority" => task.nice = int(value, -20, 19).map_err(wrong)? as i32,
            "taskgroup" => task.taskgroup = taskgroup(value).map_err(wrong)?,
            "resources" => resources(value).map_err(wrong)?,
            _ if event && phases.is_some() => {
                return Err(wrong(
                    "a task that has phases has its events there; rt-app would pass over this one"
                        .into(),
                ))
            }
            _ if event => events.push(event::read(place, key, value, global)?),
            _ => return Err(wrong(refused(key))),
        }
    }
    match phases {
        Some(phases) => {
            task.loops = looped.unwrap_or(None);
            task.phases = phase_list(name, phases, nr_cpus, global)?;
        }
        // Without phases, the task is its only phase. The loop count is then the phase's, and the
        // task itself runs once.
        None => {
            task.loops = looped.map(|_| 1);
            let loops = looped.unwrap_or(Some(1));
            task.phases.push(Phase {
                name: String::new(),
                loops,
                nice: None,
                cpus: None,
                events,
            });
        }
    }
    if task.phases.iter().any(|phase| phase.events.is_empty()) || task.phases.is_empty() {
        return Err(format!(
            "task '{name}': a task and each of its phases must have events"
        ));
    }
    // It would loop forever without doing anything.
    if task.loops != Some(0) && task.phases.iter().all(|phase| phase.loops == Some(0)) {
        return Err(place.wrong("loop", "none of the phases is ever run"));
    }
    Ok(task)
}

/// Parses phases in order. An array is accepted, too; its phases are named by their index.
fn phase_list(
    name: &str,
    value: &Json,
    nr_cpus: usize,
    global: &Global,
) -> Result<Vec<Phase>, String> {
    let place = Place {
        task: name,
        phase: None,
    };
    match value {
        Json::Object(members) => members
            .iter()
            .map(|(key, value)| phase(name, key, value, nr_cpus, global))
            .collect(),
        Json::List(list) => list
            .iter()
            .enumerate()
            .map(|(at, value)| phase(name, &at.to_string(), value, nr_cpus, global))
            .collect(),
        other => Err(place.wrong(
            "phases",
            format!("an object is needed, not {}", other.kind()),
        )),
    }
}

fn phase(
    task: &str,
    name: &str,
    value: &Json,
    nr_cpus: usize,
    global: &Global,
) -> Result<Phase, String> {
    let place = Place {
        task,
        phase: Some(name),
    };
    let members = object(value).map_err(|why| format!("task '{task}', phase '{name}': {why}"))?;
    let mut phase = Phase {
        name: name.into(),
        loops: Some(1),
        nice: None,
        cpus: None,
        events: Vec::new(),
    };
    for (at, (key, value)) in members.iter().enumerate() {
        let wrong = |why: String| place.wrong(key, why);
        let event = event::is_one(key);
        if !event && members[..at].iter().any(|(other, _)| other == key) {
            return Err(wrong("it is there twice".into()));
        }
        match key.as_str() {
            "loop" => phase.loops = loops(value).map_err(wrong)?,
            "cpus" => phase.cpus = Some(cpus(value, nr_cpus).map_err(wrong)?),
            "policy" => policy(value).map_err(wrong)?,
            "dl-runtime" => slice(value).map_err(wrong)?,
            "priority" => phase.nice = Some(int(value, -20, 19).map_err(wrong)? as i32),
            "taskgroup" => match taskgroup(value).map_err(wrong)? {
                None => {}
                Some(_) => {
                    return Err(wrong(
                        "a task cannot change its group here; say it of the task".into(),
                    ))
                }
            },
            "instance" | "delay" | "phases" => {
                return Err(wrong("this is said of tasks, not of phases".into()))
            }
            _ if event => phase.events.push(event::read(place, key, value, global)?),
            _ => return Err(wrong(refused(key))),
        }
    }
    Ok(phase)
}

/// Checks the slice that a normal task requests, in microseconds. It applies to EEVDF only, and
/// policies do not receive it. 0 is none.
fn slice(value: &Json) -> Result<(), String> {
    micros(value).map(drop)
}

fn taskgroup(value: &Json) -> Result<Option<String>, String> {
    match text(value)? {
        "" => Ok(None),
        name if name.starts_with('/') => Ok(Some(name.into())),
        name => Err(format!("'{name}' does not begin with '/'")),
    }
}

/// The reason why a key of a task or a phase is refused.
fn refused(key: &str) -> String {
    match key {
        "dl-period" | "dl-deadline" | "dl-reclaim" | "period" | "deadline" => {
            "it is SCHED_DEADLINE's, a class above all policies"
        }
        "util_min" | "util_max" => {
            "utilization clamps set frequencies, and the simulated CPUs \
            have one"
        }
        _ if key.starts_with("sem_") || key.starts_with("memrun") => {
            "the simulator has no such event of rt-app's: semaphores, and memory that is computed \
             with"
        }
        _ if key.starts_with("external_workload") => {
            "the simulator cannot run a library's code; say with run how long it computes"
        }
        "membind_nodes" | "nodes_membind" => "memory has no place in the simulator",
        _ => "rt-app has no such key",
    }
    .into()
}
