// SPDX-License-Identifier: GPL-2.0-only
//! Agents under the checker: those that are sound have nothing to be found, and of those with one
//! mistake each the checker finds it, and reproduces its story.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use baton_abi::{BatonMethod, BatonToken};
use baton_agent::{Agent, Choice, Message, Poller, Scheduler};
use baton_interleave::{check, replay, AgentSpec, Finding, Options, Property};
use baton_linked::POLICIES;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Which CPUs a task may use is looked up when it gets ready, and is outdated when it is
    /// picked.
    ActsOnStaleStatus,
    /// A task that is found after messages were lost is taken for one that is known already.
    LosesAtOverflow,
    /// Tasks that leave the enclave stay in the queue.
    ForgetsDeparted,
    /// A task that was committed stays in the queue while it is the only one.
    CommitsTwice,
}

/// A task that waits.
#[derive(Clone)]
struct Waiting {
    slot: u32,
    token: BatonToken,
    /// The CPUs that it may use, as they were when it got ready.
    cpus: Vec<bool>,
}

/// First come, first served.
struct Fifo {
    queue: VecDeque<Waiting>,
    mistake: Mistake,
}

impl Fifo {
    fn remove(&mut self, slot: u32) {
        self.queue.retain(|other| other.slot != slot);
    }
}

impl Scheduler for Fifo {
    fn ready(&mut self, agent: &Agent, task: &Message) {
        let is_found = task.method == BatonMethod::None as u16;
        if self.mistake == Mistake::LosesAtOverflow && is_found {
            return;
        }
        self.remove(task.slot);
        let cpus = 0..agent.nr_cpus();
        self.queue.push_back(Waiting {
            slot: task.slot,
            token: task.token,
            cpus: cpus.map(|cpu| agent.may_run(task.slot, cpu)).collect(),
        });
    }

    fn pick(&mut self, agent: &Agent, cpu: usize) -> Option<Choice> {
        let is_stale = self.mistake == Mistake::ActsOnStaleStatus;
        let may_run = |task: &Waiting| {
            if is_stale {
                task.cpus[cpu]
            } else {
                agent.may_run(task.slot, cpu)
            }
        };
        let place = self.queue.iter().position(may_run)?;
        let token = self.queue[place].token;
        if self.mistake != Mistake::CommitsTwice || self.queue.len() > 1 {
            self.queue.remove(place);
        }
        Some(Choice { token, slice: 0 })
    }

    fn gone(&mut self, _: &Agent, task: &Message) {
        let departs = task.method == BatonMethod::TaskDeparted as u16;
        if !(departs && self.mistake == Mistake::ForgetsDeparted) {
            self.remove(task.slot);
        }
    }

    fn reset(&mut self, _: &Agent) {
        self.queue.clear();
    }
}

fn fifo(mistake: Mistake) -> AgentSpec {
    AgentSpec::of_scheduler("fifo", 0, move |agent, own| {
        let queue = VecDeque::new();
        Ok(Box::new(Poller::new(
            Rc::new(agent),
            own,
            Fifo { queue, mistake },
        )))
    })
}

fn options(schedules: u64) -> Options {
    Options {
        schedules,
        time: Duration::from_secs(3600),
        ..Options::default()
    }
}

/// What the checker finds, twice the same.
fn finds(mistake: Mistake) -> Finding {
    let options = options(20_000);
    let outcome = check(fifo(mistake), &options, &mut |_| ()).unwrap();
    let schedules = outcome.schedules;
    let story = outcome
        .story
        .unwrap_or_else(|| panic!("{mistake:?}: nothing was found in {schedules} schedules"));
    println!("{mistake:?}: in schedule {schedules}\n{story}");
    let again = replay(fifo(mistake), &options, story.seed.clone()).unwrap();
    assert_eq!(again, story, "the same seed gives another story");
    story.finding.unwrap()
}

#[test]
fn a_fifo_has_nothing_to_be_found() {
    let outcome = check(fifo(Mistake::None), &options(4_000), &mut |_| ()).unwrap();
    assert!(outcome.story.is_none(), "{}", outcome.story.unwrap());
    assert_eq!(outcome.schedules, 4_000);
}

#[test]
fn an_agent_needs_a_cpu_beside_that_of_its_tasks() {
    let options = Options {
        cpus: 1,
        ..options(1)
    };
    let refused = check(fifo(Mistake::None), &options, &mut |_| ()).unwrap_err();
    assert!(refused.contains("a CPU for itself"), "{refused}");
}

/// The standby ring as well, which `sol` fills.
#[test]
fn schedulers_for_agents_have_nothing_to_be_found() {
    for native in &baton_agents::NATIVE {
        let Some(polling) = native.polling else {
            continue;
        };
        let make = move |agent, own| Ok(polling(agent, own));
        let spec = AgentSpec::of_scheduler(native.name, native.events, make);
        let outcome = check(spec, &options(2_000), &mut |_| ()).unwrap();
        if let Some(story) = outcome.story {
            panic!("{}: {story}", native.name);
        }
    }
}

/// The mistake leaves a task waiting.
fn a_task_waits(mistake: Mistake) {
    let found = finds(mistake);
    let waits = [
        Property::LostTask,
        Property::WorkConservation,
        Property::IdleBeside,
    ];
    assert!(waits.contains(&found.property), "{}", found.what);
}

#[test]
fn an_agent_that_acts_on_stale_status_is_found() {
    a_task_waits(Mistake::ActsOnStaleStatus);
}

#[test]
fn a_task_that_is_lost_with_its_message_is_found() {
    a_task_waits(Mistake::LosesAtOverflow);
}

#[test]
fn a_task_that_departed_and_is_not_forgotten_is_found() {
    let found = finds(Mistake::ForgetsDeparted);
    assert_eq!(found.property, Property::Discipline, "{}", found.what);
}

#[test]
fn a_task_that_is_committed_twice_is_found() {
    let found = finds(Mistake::CommitsTwice);
    let twice = [Property::OnePlace, Property::Discipline];
    assert!(twice.contains(&found.property), "{}", found.what);
}

#[test]
fn every_policy_is_sound_as_an_agent() {
    let mut unsound = Vec::new();
    for linked in POLICIES.iter().filter(|linked| linked.sound) {
        let policy = AgentSpec::of_policy((linked.policy)(), "");
        let excludes = |property: &Property| linked.excludes.contains(&property.name());
        let options = Options {
            without: Property::ALL.into_iter().filter(excludes).collect(),
            ..options(600)
        };
        let outcome = check(policy, &options, &mut |_| ()).unwrap();
        if let Some(story) = outcome.story {
            println!("{}: {story}", linked.name);
            unsound.push(linked.name);
        }
    }
    assert_eq!(unsound, [""; 0]);
}
