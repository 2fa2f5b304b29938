// SPDX-License-Identifier: GPL-2.0-only
//! Finds the moments of a recording from which a simulation can continue.

use std::collections::BTreeSet;

use baton_abi::{BatonMethod, BATON_PICK_KEEP, BATON_SELECT_DIRECT};
use baton_trace::{About, Call, Event, Follow, Item, Recording};

/// The last call, not after event `number`, that begins while no other call is under way and every
/// task is with the policy, on a CPU or asleep. `None` if there is none.
pub fn moment(recording: &Recording, number: u64) -> Option<u64> {
    let mut follow = Follow::new(recording);
    let (mut last, mut between) = (None, BTreeSet::new());
    for told in recording.merged().take_while(|told| told.number <= number) {
        let Item::Event(event) = told.item else { break };
        match event {
            Event::Call(call) => {
                if between.is_empty() && !follow.is_in_call() {
                    last = Some(told.number);
                }
                if let Some(slot) = arrives(&call) {
                    between.remove(&slot);
                }
            }
            Event::Return(end) => {
                match follow.call(told.cpu) {
                    Some(call) if leaves(call, end.answer) => {
                        _ = call.about.task().map(|task| between.insert(task.slot))
                    }
                    // The previous task stays where it is.
                    Some(Call {
                        about: About::Pick(_, Some(prev)),
                        ..
                    }) => _ = between.remove(&prev.slot),
                    _ => {}
                }
            }
            _ => {}
        }
        follow.event(told.cpu, &event, |_, _| {});
    }
    last
}

/// Is the call's task between two places after this answer?
fn leaves(call: &Call, answer: u64) -> bool {
    match call.about {
        // Another task runs. The previous one goes back to the policy.
        About::Pick(_, Some(_)) => answer > BATON_PICK_KEEP,
        About::Waking(..) => answer & BATON_SELECT_DIRECT == 0,
        About::Task(_) => call.method == BatonMethod::TaskDequeued as u8,
        _ => false,
    }
}

/// The slot of the call's task, if the call gives it a place or reports that it is gone.
fn arrives(call: &Call) -> Option<u32> {
    match call.about {
        About::Given(task, _) => Some(task.slot),
        About::Task(task) => {
            let is_gone = [BatonMethod::TaskDeparted as u8, BatonMethod::TaskDead as u8]
                .contains(&call.method);
            is_gone.then_some(task.slot)
        }
        _ => None,
    }
}
