// SPDX-License-Identifier: GPL-2.0-only
//! `baton replay --what-if`: continues in the simulator from the first different decision of a
//! policy, with that policy and with the recorded one.

use std::path::Path;

use baton_native::Policy;
use baton_replay::{Divergence, End, Options, Until};
use baton_sim::outcome::Names;
use baton_sim::scene::{moment, Scene};
use baton_sim::PolicySpec;
use baton_trace::Recording;

use super::sim::run::{done, failed, watched, Done};
use baton_control::error::{Error, Result};

/// A policy with its options, and its name in the tables.
pub struct Side {
    pub policy: Policy,
    pub options: Option<String>,
    pub name: String,
}

/// The result.
pub struct WhatIf {
    /// The event from which it was simulated, and its time since the first event, ns.
    pub number: u64,
    pub at: u64,
    /// Tasks that were with the policy, on CPUs, and asleep.
    pub tasks: [usize; 3],
    /// The runs of the recorded policy, if it is available, and of the other.
    pub runs: Vec<Done>,
}

/// Continues in the simulator from the state before the call in which `other` decided differently.
pub fn go_on(
    recording: &Recording,
    recorded: Option<&Side>,
    other: &Side,
    from: &Divergence,
) -> Result<WhatIf> {
    let number = moment(recording, from.call).ok_or_else(|| {
        Error::user(
            format!(
                "no simulation can begin before event {}: calls overlap from the beginning up to \
                 there",
                from.call
            ),
            "record again, or look at it with `baton replay --print --until N`",
        )
    })?;
    let scene = |why: String| {
        Error::user(
            format!("no simulation can begin at event {number}: {why}"),
            "record again",
        )
    };
    let first = Scene::of(recording, number).map_err(scene)?;
    let mut what = WhatIf {
        number,
        at: 0,
        tasks: first.counts(),
        runs: Vec::new(),
    };
    what.at = time_of(recording, number);
    // A policy whose source has changed since the recording is not the recorded one.
    let recorded = recorded.filter(|side| is_recorded(recording, side, from.number));
    for side in recorded.into_iter().chain([other]) {
        what.runs.push(simulate(recording, side, number)?);
    }
    Ok(what)
}

fn time_of(recording: &Recording, number: u64) -> u64 {
    let call = |told: baton_trace::Told| match told.item {
        baton_trace::Item::Event(baton_trace::Event::Call(call)) if told.number == number => {
            Some(call.now)
        }
        _ => None,
    };
    recording
        .merged()
        .find_map(call)
        .map_or(0, |now| now.saturating_sub(recording.begin()))
}

/// Does this policy give the recorded answer to the call in which the other does not?
fn is_recorded(recording: &Recording, side: &Side, number: u64) -> bool {
    let options = Options {
        single: true,
        policy_options: side.options.clone(),
        until: Some(Until::Event(number + 1)),
        ..Options::default()
    };
    let outcome = baton_replay::replay(recording, side.policy, &options);
    outcome.is_ok_and(|outcome| !matches!(outcome.end, End::Diverged(_)))
}

fn simulate(recording: &Recording, side: &Side, number: u64) -> Result<Done> {
    let wrong = |why: String| {
        Error::user(
            format!("{} cannot continue: {why}", side.name),
            "see docs/replay.md",
        )
    };
    let instance = baton_replay::up_to(recording, side.policy, side.options.as_deref(), number)
        .map_err(wrong)?;
    let scene = Scene::of(recording, number).map_err(wrong)?;
    let mut config = scene.config(recording).map_err(wrong)?;
    let options = side
        .options
        .clone()
        .unwrap_or_else(|| recording.header.options.clone());
    config.policies.push(PolicySpec {
        policy: side.policy,
        options,
    });
    let names = Names {
        policy: side.name.clone(),
        workload: format!("what the tasks did after event {number}"),
        topology: format!("{} CPUs", recording.header.cpus.len()),
    };
    let _running = watched(&config, &side.name);
    let outcome = baton_sim::go_on(&config, scene, instance, None)
        .map_err(|error| failed(error, Path::new("")))?;
    Ok(done(&config, &outcome, names, None))
}
