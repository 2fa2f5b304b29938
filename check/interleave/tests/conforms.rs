// SPDX-License-Identifier: GPL-2.0-only
//! The checker's kernel behaves as every host must (`policy/conformance`).

use baton_conformance::{
    behaves, fails, lives, Host, Needs, Report, Step, BEGIN, LIFE, ROUNDS, TELL,
};
use baton_interleave::{check, replay, Finding, Options, Property};
use baton_linked::{faulty, find, witness, POLICIES};
use baton_native::Policy;

/// The checker, as a host to be tested.
struct Checker;

/// What is found while one task performs the steps on two CPUs, the second of which is shared with
/// the other tasks.
fn perform(policy: Policy, steps: Vec<Step>, tasks: usize) -> Result<Option<Finding>, String> {
    let options = Options {
        steps,
        ..Options::default()
    };
    let seed = format!("rnd-2c{tasks}t0e-0x0").parse()?;
    Ok(replay(policy, &options, seed)?.finding)
}

impl Host for Checker {
    fn perform(&mut self, steps: &'static [Step]) -> Result<String, String> {
        let all = [
            &[Step::Bind(0), Step::Nice(BEGIN)],
            steps,
            &[Step::Nice(TELL)],
        ]
        .concat();
        let finding = perform(witness(), all, 1)?.ok_or("the witness does not report")?;
        let report = finding.report.ok_or(finding.what)?;
        Ok(report.message)
    }

    fn provoke(&mut self, option: &'static str) -> Result<Option<Report>, String> {
        let options = Options {
            policy: format!("fault={option},after=1"),
            // What the checker demands beyond the kernel.
            without: vec![
                Property::WorkConservation,
                Property::BoundedWait,
                Property::ClaimedIdle,
            ],
            ..Options::default()
        };
        let outcome = check(faulty(), &options, &mut |_| ())?;
        let finding = outcome.story.and_then(|story| story.finding);
        // Without a report, the kernel would not have noticed.
        let report = finding.and_then(|finding| finding.report);
        Ok(report.map(|report| Report {
            kind: report.kind.into(),
            method: report.method.into(),
            file: report.file,
            task: report.task.into(),
        }))
    }

    fn live(&mut self, policy: &str) -> Result<(), String> {
        let steps = [LIFE].repeat(ROUNDS).concat();
        let finding = perform((find(policy).policy)(), steps, 4)?;
        finding.map_or(Ok(()), |finding| Err(finding.what))
    }

    /// CPUs take turns, and the atomics of a linked policy are no places where they do (those of
    /// one that was built for the checker are). Memory and tasks that wait are not watched.
    fn has(&self, capability: Needs) -> bool {
        capability == Needs::BoundedStack
    }
}

#[test]
fn a_task_comes_with_the_calls_that_it_should() {
    behaves(&mut Checker).unwrap();
}

#[test]
fn what_a_policy_does_wrong_is_named() {
    fails(&mut Checker).unwrap();
}

#[test]
fn every_policy_survives_what_tasks_do() {
    let sound = POLICIES.iter().filter(|linked| linked.sound);
    lives(&mut Checker, sound.map(|linked| linked.name)).unwrap();
}
