// SPDX-License-Identifier: GPL-2.0-only
//! Agents on the simulated machine.

use std::collections::VecDeque;
use std::rc::Rc;

use baton_abi::{BatonFaultKind, BATON_AGENT_MIN_ENTRIES};
use baton_agent::{Agent, Choice, Message, Poller, Scheduler};
use baton_native::Policy;
use baton_sim::world::{Cx, Op, Spawn, World};
use baton_sim::{AgentSpec, Config, Outcome};

use crate::faults::world;
use crate::{faulty, machine, run, sound, text, wfq, workload};

/// Adds the CPU of an agent to a machine, which has no other policy.
fn with_agent(agent: AgentSpec, ms: u64) -> Config {
    let mut config = machine("1x5x1", wfq(), ms);
    config.policies.clear();
    config.agent = Some(agent);
    config
}

fn policy(policy: Policy) -> AgentSpec {
    AgentSpec::of_policy(policy, "")
}

#[test]
fn every_policy_runs_as_an_agent_twice_the_same() {
    for sound in sound() {
        let hash = |workload_of: &str| {
            let config = with_agent(policy(sound), 50);
            let outcome = run(&config, workload(workload_of, &config));
            let name = sound.name();
            assert!(
                outcome.stats.groups.iter().any(|group| group.done > 0),
                "{name}: {workload_of}: nothing is done"
            );
            outcome.stats.hash.value()
        };
        for workload in ["hackbench:groups=2", "pipe", "schbench"] {
            assert_eq!(hash(workload), hash(workload), "{}", sound.name());
        }
    }
}

/// The median of the times from a wakeup to the CPU, ns, of two tasks that wake each other.
fn wakeup(change: impl Fn(&mut Config)) -> u64 {
    let mut config = with_agent(policy(wfq()), 50);
    change(&mut config);
    let outcome = run(&config, workload("pipe", &config));
    let group = &outcome.stats.groups[0];
    group.wakeups.percentiles().p50
}

#[test]
fn an_agent_is_as_late_as_it_is_said_to_be() {
    let usual = wakeup(|_| ());
    for (name, more) in [
        ("agent_message", 5_000),
        ("agent_work", 5_000),
        ("agent_commit", 5_000),
    ] {
        let late = wakeup(|config| {
            let mut costs = config.costs.by_name();
            let cost = costs.iter_mut().find(|(of, _)| *of == name).unwrap();
            *cost.1 += more;
        });
        assert!(
            late >= usual + more - more / 10,
            "{name}: {late} after {usual}"
        );
    }
}

/// What happens to tasks that do all that tasks do, and in time use two CPUs.
fn failed(agent: AgentSpec, change: impl Fn(&mut Config)) -> Outcome {
    let mut config = with_agent(agent, 2_000);
    config.topology = "1x3x1".parse().unwrap();
    config.agent_cpu = 2;
    config.stall = 100_000_000;
    change(&mut config);
    baton_sim::run(&config, world(), None).unwrap()
}

#[test]
fn what_a_policy_does_wrong_in_an_agent_is_named() {
    for (fault, kind, has_line) in [
        ("index", BatonFaultKind::Panic, true),
        ("recursion", BatonFaultKind::StackOverflow, true),
        ("kept-lock", BatonFaultKind::Deadlock, false),
        ("stall", BatonFaultKind::Stall, false),
    ] {
        let options = format!("fault={fault},after=100");
        let outcome = failed(AgentSpec::of_policy(faulty(), &options), |_| ());
        let report = outcome
            .faults
            .first()
            .unwrap_or_else(|| panic!("{fault}: no fault was found"));
        assert_eq!(report.kind, kind as u32, "{fault}");
        assert_eq!(text(&report.policy), "faulty");
        assert_eq!(report.line != 0, has_line, "{fault}");
    }
}

#[test]
fn an_agent_that_is_too_slow_is_given_up() {
    let outcome = failed(policy(wfq()), |config| {
        config.costs.agent_work = 1_000_000_000
    });
    assert_eq!(outcome.faults[0].kind, BatonFaultKind::Stall as u32);
    let outcome = failed(policy(wfq()), |config| {
        config.costs.agent_work = 1_000_000;
        config.agent.as_mut().unwrap().entries = BATON_AGENT_MIN_ENTRIES;
    });
    assert_eq!(outcome.faults[0].kind, BatonFaultKind::AgentGone as u32);
}

/// First come, first served.
#[derive(Default)]
struct Fifo(VecDeque<(u32, u64)>);

impl Scheduler for Fifo {
    fn ready(&mut self, agent: &Agent, task: &Message) {
        self.gone(agent, task);
        self.0.push_back((task.slot, task.token));
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let may_run = |(slot, _): &(u32, u64)| agent.may_run(*slot, cpu);
        let place = self.0.iter().position(may_run)?;
        let (_, token) = self.0.remove(place)?;
        Some(Choice { token, slice: 0 })
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        self.0.retain(|(slot, _)| *slot != task.slot);
    }

    fn reset(&mut self, _: &Agent) {
        self.0.clear();
    }
}

#[test]
fn messages_that_find_no_room_lose_no_task() {
    let fifo = AgentSpec {
        entries: BATON_AGENT_MIN_ENTRIES,
        ..AgentSpec::of_scheduler("fifo", 0, |agent, own| {
            Ok(Box::new(Poller::new(Rc::new(agent), own, Fifo::default())))
        })
    };
    let mut config = with_agent(fifo, 5_000);
    config.agent_cpu = 4;
    config.costs.agent_work = 20_000;
    let mut world = World::new();
    const TASKS: u64 = 1_000;
    let group = world.group("sleepers");
    for _ in 0..TASKS {
        let mut left = 20_i32;
        let sleeper = move |_: &mut Cx<'_>| {
            left -= 1;
            match left {
                -1 => Op::Exit,
                0 => Op::Done(1),
                left if left % 2 == 0 => Op::Run(10_000),
                _ => Op::Sleep(1_000_000),
            }
        };
        world.task(Spawn::new("sleeper", sleeper).group(group));
    }
    let outcome = run(&config, world);
    let group = &outcome.stats.groups[0];
    assert_eq!((group.tasks, group.done), (TASKS, TASKS));
    assert!(outcome.refusals == 0, "{} refusals", outcome.refusals);
}
