// SPDX-License-Identifier: GPL-2.0-only
//! What policies and CPUs do, interval by interval: `baton monitor`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use baton_abi::{BatonCalls, BatonLanguage, BatonMethod, BatonPolicyInfo, BATON_MEASURE_MAX_MS};
use baton_core::histogram;
use serde::Serialize;

use crate::cores::{Cores, Times};
use crate::device::Device;
use crate::error::Result;
use crate::kernel;
use crate::report::{percent, table, time};
use crate::status::{RefusedChange, Status};

/// See [`BatonCalls`].
const BITS: u32 = 2;

/// How long measuring goes on after the last reading that was due, so that a slow reader loses
/// nothing, and one that was killed leaves nothing behind.
const GRACE: Duration = Duration::from_secs(10);

/// A measurement of all policies and CPUs.
pub struct Monitor {
    cores: Cores,
    interval: Duration,
    begin: Instant,
    /// What was read last: calls by the id of the policy and the method, and refusals.
    calls: BTreeMap<(u32, u32), BatonCalls>,
    refusals: BTreeMap<u32, u64>,
    refused: BTreeMap<(u32, String, Option<u32>, String), u64>,
}

/// What happened in an interval.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Interval {
    pub seconds: f64,
    pub policies: Vec<Policy>,
    /// How each CPU spent the time.
    pub cpus: Vec<Cpu>,
}

/// A policy in an interval.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Policy {
    pub name: String,
    pub state: &'static str,
    /// Tasks at the end of the interval, and their states.
    pub tasks: u32,
    pub running: u32,
    pub queued: u32,
    pub asleep: u32,
    /// Answers that were refused.
    pub refusals: u64,
    /// Of the methods that were called.
    pub calls: Vec<Calls>,
    /// Changes of threads' states that were refused; `times` is of the interval.
    pub refused_changes: Vec<RefusedChange>,
}

/// The calls of a method in an interval.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Calls {
    pub method: &'static str,
    /// The handlers of a policy in C by events that the method calls.
    pub handlers: Option<&'static str>,
    pub calls: u64,
    pub mean_ns: u64,
    /// Durations that half of the calls, and 99 of 100, did not exceed; at most a quarter too long.
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// Since measuring began.
    pub longest_ns: u64,
}

/// A CPU in an interval.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub cpu: u32,
    #[serde(flatten)]
    pub times: Times,
}

impl Monitor {
    /// Begins to measure, with the BPF object for CPUs. Readings are to follow at this interval.
    pub fn start(object: &Path, interval: Duration) -> Result<Self> {
        let last = kernel::cpus("possible")?.iter().last();
        let mut monitor = Self {
            cores: Cores::start(object, last.map_or(1, |last| last + 1))?,
            interval,
            begin: Instant::now(),
            calls: BTreeMap::new(),
            refusals: BTreeMap::new(),
            refused: BTreeMap::new(),
        };
        monitor.read()?;
        Ok(monitor)
    }

    /// What has happened since the last call. The core may come and go meanwhile.
    pub fn read(&mut self) -> Result<Interval> {
        let (now, times) = (Instant::now(), self.cores.read()?);
        let seconds = now.duration_since(self.begin).as_secs_f64();
        self.begin = now;
        // The device is not kept open, as the core could then not be unloaded.
        let policies = match Device::open_if_loaded()? {
            Some(device) => self.policies(&device)?,
            None => Vec::new(),
        };
        let online = kernel::cpus("online")?;
        let of = |cpu: u32| {
            times
                .get(cpu as usize)
                .map(|times| Cpu { cpu, times: *times })
        };
        Ok(Interval {
            seconds,
            policies,
            cpus: online.iter().filter_map(of).collect(),
        })
    }

    fn policies(&mut self, device: &Device) -> Result<Vec<Policy>> {
        let until = (self.interval + GRACE).as_millis() as u64;
        device.measure(until.min(u64::from(BATON_MEASURE_MAX_MS)) as u32)?;
        let status = Status::read(device)?;
        let infos = device.policies()?;
        let is_there = |id: u32| infos.iter().any(|info| info.id == id);
        self.calls.retain(|(id, _), _| is_there(*id));
        self.refusals.retain(|id, _| is_there(*id));
        self.refused.retain(|(id, ..), _| is_there(*id));
        let mut found = Vec::new();
        for policy in status.policies {
            let Some(info) = infos.iter().find(|info| info.id == policy.id) else {
                continue;
            };
            let refusals = self.refusals.insert(policy.id, policy.refusals);
            let refused = policy.refused_changes.into_iter();
            found.push(Policy {
                calls: self.calls(device, info)?,
                name: policy.name,
                state: policy.state,
                tasks: policy.tasks,
                running: policy.running,
                queued: policy.queued,
                asleep: policy.asleep,
                refusals: policy.refusals.saturating_sub(refusals.unwrap_or(0)),
                refused_changes: refused
                    .filter_map(|change| self.new_refused(policy.id, change))
                    .collect(),
            });
        }
        Ok(found)
    }

    /// The part of a count of refused changes that is new, if there is any.
    fn new_refused(&mut self, policy: u32, change: RefusedChange) -> Option<RefusedChange> {
        let place = (
            policy,
            change.handler.clone(),
            change.line,
            change.why.clone(),
        );
        let before = self.refused.insert(place, change.times).unwrap_or(0);
        // A policy that is started again counts anew.
        let times = match change.times.checked_sub(before) {
            Some(new) => new,
            None => change.times,
        };
        (times != 0).then_some(RefusedChange { times, ..change })
    }

    /// The calls of a policy since the last reading.
    fn calls(&mut self, device: &Device, info: &BatonPolicyInfo) -> Result<Vec<Calls>> {
        let mut found = Vec::new();
        for method in BatonMethod::ALL {
            let calls = device.calls(info.index, *method)?;
            let before = self.calls.insert((info.id, *method as u32), calls);
            let is_events = info.language == BatonLanguage::Events as u32;
            found.extend(between(before.as_ref(), &calls).map(|calls| Calls {
                method: method.name(),
                handlers: is_events.then(|| handlers(*method)),
                ..calls
            }));
        }
        Ok(found)
    }
}

/// The calls between two readings; `None` if there are none.
fn between(before: Option<&BatonCalls>, now: &BatonCalls) -> Option<Calls> {
    let mut classes = now.classes;
    let mut total = now.total;
    // Another measurement may have begun meanwhile: then all calls are new.
    let goes_on = |before: &&BatonCalls| {
        let pairs = before.classes.iter().zip(&now.classes);
        before.total <= now.total && pairs.into_iter().all(|(before, now)| before <= now)
    };
    if let Some(before) = before.filter(goes_on) {
        total -= before.total;
        for (class, before) in classes.iter_mut().zip(&before.classes) {
            *class -= before;
        }
    }
    let calls: u64 = classes.iter().sum();
    let percentile = |percent| histogram::percentile(&classes, BITS, percent);
    // No duration is longer than the longest, but its class may be.
    Some(Calls {
        method: "",
        handlers: None,
        calls,
        mean_ns: total.checked_div(calls)?,
        p50_ns: percentile(50)?.min(now.longest),
        p99_ns: percentile(99)?.min(now.longest),
        longest_ns: now.longest,
    })
}

/// The handlers that the functions of a policy by events call (`policy/c/events-policy.h`).
fn handlers(method: BatonMethod) -> &'static str {
    match method {
        BatonMethod::SelectTaskRq => "new_prepare, unblock_prepare",
        BatonMethod::TaskNew => "new_place, new_end",
        BatonMethod::TaskWakeup => "unblock_place, unblock_end",
        BatonMethod::TaskPreempt => "preempt",
        BatonMethod::TaskYield => "yield",
        BatonMethod::TaskRestored => "block, unblock_place (ousted)",
        BatonMethod::PickNextTask => "schedule",
        BatonMethod::NewlyIdle => "newly_idle",
        BatonMethod::PickRefused => "block, unblock_place (refused)",
        BatonMethod::Balance => "balancing_select",
        BatonMethod::TaskBlocked => "block",
        BatonMethod::TaskDequeued => "block (ousted)",
        BatonMethod::TaskDeparted => "terminate (departs)",
        BatonMethod::TaskDead => "terminate",
        BatonMethod::TaskPrioChanged => "reweight",
        BatonMethod::TaskTick => "tick",
        BatonMethod::Timer => "timer",
        BatonMethod::CpuOnline => "core_entry",
        BatonMethod::CpuOffline => "core_exit",
        BatonMethod::EnterIdle => "enter_idle",
        BatonMethod::ExitIdle => "exit_idle",
        BatonMethod::Hint => "hint, checkparam, setparam, getparam, attr_changed",
        BatonMethod::None
        | BatonMethod::Create
        | BatonMethod::Destroy
        | BatonMethod::TaskAffinityChanged
        | BatonMethod::ReregisterPrepare
        | BatonMethod::ReregisterInit
        | BatonMethod::ReregisterDrop
        | BatonMethod::ReregisterConvert
        | BatonMethod::ReregisterTake
        | BatonMethod::ReregisterSave
        | BatonMethod::ReregisterLoad
        | BatonMethod::MayHave => "-",
    }
}

/// An interval as text.
pub fn text_of(interval: &Interval) -> String {
    let mut text = String::new();
    for policy in &interval.policies {
        text += &policy_text(policy, interval.seconds);
    }
    if interval.policies.is_empty() {
        text += "there is no such policy\n\n";
    }
    let rows = interval.cpus.iter().map(|cpu| {
        let part = |ns| percent(ns, cpu.times.all_ns());
        vec![
            cpu.cpu.to_string(),
            part(cpu.times.idle_ns),
            part(cpu.times.busy_ns),
            part(cpu.times.overloaded_ns),
            part(cpu.times.wasted_ns),
        ]
    });
    let titles = ["CPU", "IDLE", "BUSY", "OVERLOADED", "WASTED"];
    text + &table(&titles, &rows.collect::<Vec<_>>())
}

fn policy_text(policy: &Policy, seconds: f64) -> String {
    let mut text = format!(
        "{} ({}): {} tasks: {} running, {} queued, {} asleep; {} answers refused\n",
        policy.name,
        policy.state,
        policy.tasks,
        policy.running,
        policy.queued,
        policy.asleep,
        policy.refusals
    );
    let rows = policy.calls.iter().map(|calls| {
        vec![
            calls.handlers.unwrap_or(calls.method).to_owned(),
            calls.calls.to_string(),
            format!("{:.0}", calls.calls as f64 / seconds),
            time(calls.mean_ns),
            time(calls.p50_ns),
            time(calls.p99_ns),
            time(calls.longest_ns),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let first = match policy.calls.first() {
        Some(calls) if calls.handlers.is_some() => "HANDLERS",
        _ => "METHOD",
    };
    if !rows.is_empty() {
        let titles = [first, "CALLS", "PER S", "MEAN", "P50", "P99", "LONGEST"];
        text += &table(&titles, &rows);
    }
    for change in &policy.refused_changes {
        let line = change.line.map_or("?".into(), |line| line.to_string());
        text += &format!(
            "refused {} times: {}, line {line}: {} to {}: {}\n",
            change.times, change.handler, change.from, change.to, change.why
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::BATON_CALL_CLASSES;

    fn measured(durations: &[u64]) -> BatonCalls {
        let mut calls = BatonCalls {
            policy: 0,
            method: 0,
            total: durations.iter().sum(),
            longest: durations.iter().copied().max().unwrap_or(0),
            classes: [0; BATON_CALL_CLASSES],
        };
        for ns in durations {
            calls.classes[histogram::class_of(*ns, BITS)] += 1;
        }
        calls
    }

    #[test]
    fn an_interval_has_the_calls_since_the_last_reading() {
        let before = measured(&[100, 100, 9000]);
        let now = measured(&[100, 100, 9000, 400, 400]);
        let calls = between(Some(&before), &now).unwrap();
        assert_eq!((calls.calls, calls.mean_ns), (2, 400));
        assert_eq!((calls.p50_ns, calls.p99_ns), (447, 447));
        assert_eq!(calls.longest_ns, 9000);
        assert_eq!(between(Some(&now), &now), None);
    }

    #[test]
    fn a_measurement_that_began_anew_counts_whole() {
        let calls = between(Some(&measured(&[100, 9000])), &measured(&[5, 5, 5]));
        assert_eq!(calls.map(|calls| (calls.calls, calls.p99_ns)), Some((3, 5)));
    }

    #[test]
    fn an_interval_as_text() {
        let interval = Interval {
            seconds: 2.0,
            policies: vec![Policy {
                name: "mine".into(),
                state: "running",
                tasks: 3,
                running: 1,
                queued: 1,
                asleep: 1,
                refusals: 0,
                calls: vec![Calls {
                    method: "pick_next_task",
                    handlers: Some(handlers(BatonMethod::PickNextTask)),
                    calls: 500,
                    mean_ns: 310,
                    p50_ns: 319,
                    p99_ns: 1279,
                    longest_ns: 45_000,
                }],
                refused_changes: vec![RefusedChange {
                    handler: "tick".into(),
                    line: Some(40),
                    times: 2,
                    from: "RUNNING".into(),
                    to: "BLOCKED".into(),
                    pid: 7,
                    why: "no".into(),
                }],
            }],
            cpus: vec![Cpu {
                cpu: 0,
                times: Times {
                    idle_ns: 500,
                    busy_ns: 250,
                    overloaded_ns: 250,
                    wasted_ns: 125,
                },
            }],
        };
        let expected = "\
mine (running): 3 tasks: 1 running, 1 queued, 1 asleep; 0 answers refused
HANDLERS  CALLS  PER S    MEAN     P50      P99  LONGEST
schedule    500    250  310 ns  319 ns  1.28 µs  45.0 µs
refused 2 times: tick, line 40: RUNNING to BLOCKED: no

CPU     IDLE     BUSY  OVERLOADED   WASTED
  0  50.00 %  25.00 %     25.00 %  12.50 %
";
        assert_eq!(text_of(&interval), expected);
    }
}
